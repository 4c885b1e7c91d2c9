// %% [markdown]
// # Several devices in one process
//
// Splits each batch across several devices; each device computes its part with
// a replica of the model. This takes one line, `learn.to_parallel()`, and works
// in any precision. With fewer than two GPUs the program uses one device twice.
// If each GPU can have its own process, `ddp.cpp` is faster.

// %%
#include <cmath>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <tern/tern.h>
#include <torch/cuda.h>

#include "options.h"
#include "support/synthetic_digits.h"

namespace {

std::vector<torch::Device> all_devices() {
  const torch::Device device = tern::DataBunch::default_device();
  if (!device.is_cuda() || torch::cuda::device_count() < 2) {
    return {device, device};
  }
  std::vector<torch::Device> devices;
  for (c10::DeviceIndex i = 0; i < torch::cuda::device_count(); ++i) {
    devices.emplace_back(torch::kCUDA, i);
  }
  return devices;
}

}  // namespace

// %%
int main(int argc, char** argv) try {
  int64_t epochs = 1;
  tern::examples::Options app(
      "Trains on MNIST and splits each batch across several devices");
  app.add_number("--epochs", epochs, 1, 10'000, "passes over the data");
  app.read(argc, argv);

  // %% [markdown]
  // ## The additional line: `to_parallel`

  // %%
  const auto path = tern::examples::mnist_or_digits(tern::urls::mnist_sample);

  const auto train = [&](const std::vector<torch::Device>& devices) {
    torch::manual_seed(1);
    auto data = tern::ImageDataBunch::from_folder(path, {.seed = 42});
    auto learn = tern::Learner(
        data,
        tern::simple_cnn({3, 16, 16, 2}),
        {.metrics = {tern::accuracy()}});
    learn.to_amp().to_parallel(devices).fit(epochs);
    return learn.validate();
  };

  // %% [markdown]
  // ## One device compared with all

  // %%
  const auto devices = all_devices();
  fmt::print("One device:\n");
  const tern::Validation one = train({devices[0]});
  fmt::print("Each batch split into {} parts:\n", devices.size());
  const tern::Validation all = train(devices);

  // Values are summed in a different order, in 16 bits, so the results round
  // differently and the difference grows during training. The losses over the
  // whole validation set still agree.
  const double difference = std::abs(one.loss - all.loss);
  fmt::print("Validation losses differ by {:.2g}\n", difference);
  return difference < 0.02 && all.metrics[0].value > 0.9 ? 0 : 1;
} catch (const std::exception& error) {
  fmt::print(stderr, "error: {}\n", tern::message_of(error));
  return 1;
}
