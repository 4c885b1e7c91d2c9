// Predicts a batch of images with a model of tern::vision.
#include <tern/tern.h>

int main() {
  auto model = tern::Model(tern::simple_cnn({3, 16, 16, 2}));
  const auto pred = model.forward({torch::zeros({4, 3, 28, 28})});
  return pred.at(0).sizes() == c10::IntArrayRef{4, 2} ? 0 : 1;
}
