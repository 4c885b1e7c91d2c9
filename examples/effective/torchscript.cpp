// %% [markdown]
// # TorchScript
//
// Compiles a script in C++ and compares it with a loop and with one batched
// operation. Then trains a TorchScript model from a file with the Learner.
// Based on "Optimizing runtime with TorchScript" in the tutorial Effective
// PyTorch.

// %%
#include <chrono>
#include <memory>
#include <string>

#include <fmt/format.h>
#include <tern/tern.h>
#include <torch/jit.h>
#include <torch/script.h>

#include "../options.h"

using torch::Tensor;

// %% [markdown]
// ## Batch gather
//
// Three ways to compute `output[i] = tensor[i][indices[i]]`.

// %%
Tensor gather_in_a_loop(const Tensor& tensor, const Tensor& indices) {
  tern::Tensors rows;
  for (int64_t i = 0; i < tensor.size(0); ++i) {
    rows.push_back(tensor[i].index({indices[i]}));
  }
  return torch::stack(rows);
}

constexpr const char* kGatherScript = R"(
def gather(tensor, indices):
  rows = []
  for i in range(tensor.size(0)):
    rows.append(tensor[i][indices[i]])
  return torch.stack(rows)
)";

Tensor gather_batched(const Tensor& tensor, const Tensor& indices) {
  const int64_t n = tensor.size(0), each = tensor.size(1);
  const Tensor offset = torch::arange(n).unsqueeze(1) * each;
  return tensor.flatten(0, 1).index({indices + offset});
}

// Returns the mean time of 10 calls, after three calls that compile the script.
template <class F>
double milliseconds(const F& function) {
  for (int i = 0; i < 3; ++i) function();
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 10; ++i) function();
  const std::chrono::duration<double, std::milli> time =
      std::chrono::steady_clock::now() - start;
  return time.count() / 10;
}

// %% [markdown]
// ## A model in a file

// %%
// Writes the same kind of file as torch.jit.script(net).save(file) in Python.
void write_model(const std::string& file) {
  torch::jit::Module net("Net");
  net.register_attribute("training", c10::BoolType::get(), true);
  const auto parameter = [&](const char* name, const Tensor& value) {
    net.register_parameter(name, value.requires_grad_(), /*is_buffer=*/false);
  };
  parameter("weight1", torch::randn({32, 2}));
  parameter("bias1", torch::randn({32}));
  parameter("weight2", 0.2 * torch::randn({2, 32}));
  parameter("bias2", torch::zeros({2}));
  net.define(R"(
def forward(self, x):
  hidden = torch.tanh(torch.linear(x, self.weight1, self.bias1))
  return torch.linear(hidden, self.weight2, self.bias2)
)");
  net.save(file);
}

// Random points with label 1 inside the circle of radius 1, else 0.
std::shared_ptr<tern::Dataset> points(int64_t count) {
  const Tensor x = torch::rand({count, 2}) * 3 - 1.5;
  const Tensor y = (x.norm(2, 1) < 1).to(torch::kLong);
  return std::make_shared<tern::TensorDataset>(
      tern::Tensors{x},
      tern::Tensors{y});
}

// %%
int main(int argc, char** argv) try {
  tern::examples::Options("Compiles, trains and saves TorchScript")
      .read(argc, argv);

  // %% [markdown]
  // ## Timing the three ways

  // %%
  torch::manual_seed(1);
  const Tensor tensor = torch::rand({256, 100, 8});
  const Tensor indices = torch::randint(100, {256, 5});
  const auto script = torch::jit::compile(kGatherScript);
  const auto scripted = [&] {
    return script->run_method("gather", tensor, indices).toTensor();
  };
  const Tensor expected = gather_in_a_loop(tensor, indices);
  bool holds = torch::equal(scripted(), expected) &&
               torch::equal(gather_batched(tensor, indices), expected);
  fmt::print(
      "Batch gather of 256 rows, {}:\n"
      "  loop in C++      {:>7.3f} ms\n"
      "  TorchScript      {:>7.3f} ms\n"
      "  one operation    {:>7.3f} ms\n\n",
      holds ? "three times the same result" : "DIFFERENT RESULTS",
      milliseconds([&] { gather_in_a_loop(tensor, indices); }),
      milliseconds(scripted),
      milliseconds([&] { gather_batched(tensor, indices); }));

  // %% [markdown]
  // ## Loading and training a TorchScript model

  // %%
  write_model("net.pt");
  torch::jit::Module net = torch::jit::load("net.pt");
  fmt::print("A TorchScript model from net.pt, in mixed precision:\n");
  const auto data =
      tern::DataBunch::create(points(4000), points(1000), {.workers = 0});
  tern::Learner learn(data, net, {.metrics = {tern::accuracy()}});
  learn.to_amp().fit(6, 1e-2);
  learn.to_fp32();
  const double trained = learn.validate().metrics[0].value;

  // The Learner trains `net` in place, so `net` can be saved directly.
  net.save("trained.pt");
  tern::Learner again(
      data,
      torch::jit::load("trained.pt"),
      {.metrics = {tern::accuracy()}, .sink = tern::silent()});
  const double loaded = again.validate().metrics[0].value;
  fmt::print(
      "Accuracy in fp32 {:.3f}; of the model saved and loaded again {:.3f}.\n",
      trained,
      loaded);
  holds = holds && trained > 0.95 && trained == loaded;
  return holds ? 0 : 1;
} catch (const std::exception& error) {
  fmt::print(stderr, "error: {}\n", tern::message_of(error));
  return 1;
}
