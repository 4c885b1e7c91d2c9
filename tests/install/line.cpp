// Learns the line y = 2x + 1.
#include <tern/tern.h>

int main() {
  const auto x = torch::linspace(-1, 1, 256).unsqueeze(1);
  const auto points = std::make_shared<tern::TensorDataset>(
      tern::Tensors{x},
      tern::Tensors{2 * x + 1});
  auto learn = tern::Learner(
      tern::DataBunch::create(points, points, {.batch_size = 16}),
      torch::nn::Linear(1, 1));
  learn.fit_one_cycle(8, {.max_lr = 0.1});
  return learn.validate().loss < 0.05 ? 0 : 1;
}
