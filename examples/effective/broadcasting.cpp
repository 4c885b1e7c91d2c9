// %% [markdown]
// # Broadcasting
//
// Broadcasting repeats a dimension of size 1 as needed, without a copy. Based
// on "Broadcasting the good and the ugly" in the tutorial Effective PyTorch.

// %%
#include <algorithm>
#include <chrono>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <tern/tern.h>
#include <torch/nn/modules/linear.h>

#include "../options.h"

// %% [markdown]
// ## Merging features
//
// This module combines the features of an item with its group's features. Below
// it gets 64 groups of 128 items each.

// %%
// Combines the features of two inputs whose leading dimensions broadcast.
// linear(cat(a, b)) equals linear1(a) + linear2(b), so nothing has to be tiled
// or concatenated.
struct MergeImpl : torch::nn::Module {
  MergeImpl(int64_t in1, int64_t in2, int64_t out)
      : linear1(register_module("linear1", torch::nn::Linear(in1, out))),
        linear2(register_module(
            "linear2",
            torch::nn::Linear(
                torch::nn::LinearOptions(in2, out).bias(false)))) {}
  torch::Tensor forward(const torch::Tensor& a, const torch::Tensor& b) {
    return torch::relu(linear1->forward(a) + linear2->forward(b));
  }
  torch::nn::Linear linear1, linear2;
};
TORCH_MODULE(Merge);

double megabytes(std::initializer_list<torch::Tensor> tensors) {
  double bytes = 0;
  for (const torch::Tensor& t : tensors) {
    bytes += static_cast<double>(t.storage().nbytes());
  }
  return bytes / 1e6;
}

// Returns the time of the fastest of five calls.
template <class F>
double milliseconds(const F& function) {
  double best = 1e9;
  for (int i = 0; i < 5; ++i) {
    const auto start = std::chrono::steady_clock::now();
    function();
    const std::chrono::duration<double, std::milli> time =
        std::chrono::steady_clock::now() - start;
    best = std::min(best, time.count());
  }
  return best;
}

// %%
int main(int argc, char** argv) try {
  tern::examples::Options("Shows what broadcasting saves, and a pitfall")
      .read(argc, argv);

  // %% [markdown]
  // ## Repeating a column with `repeat` and `expand`

  // %%
  const torch::NoGradGuard no_grad;
  torch::manual_seed(1);
  bool holds = true;

  const torch::Tensor column = torch::rand({1000, 1});
  const torch::Tensor tiled = column.repeat({1, 1000});
  const torch::Tensor view = column.expand({1000, 1000});
  fmt::print(
      "A column as 1000 columns: repeat takes {:.3f} MB, expand {:.3f} MB "
      "(stride {}).\n",
      megabytes({tiled}),
      megabytes({view}),
      view.stride(1));
  holds = holds && torch::equal(tiled, view) && view.stride(1) == 0;

  // %% [markdown]
  // ## The good: no tiling, no concatenation

  // %%
  const torch::Tensor items = torch::rand({64, 128, 256});
  const torch::Tensor groups = torch::rand({64, 1, 512});
  Merge merge(256, 512, 128);
  // The equivalent single layer: its weight is the two weights side by side.
  torch::nn::Linear joint(256 + 512, 128);
  joint->weight.copy_(
      torch::cat({merge->linear1->weight, merge->linear2->weight}, 1));
  joint->bias.copy_(merge->linear1->bias);
  const auto by_concat = [&] {
    const torch::Tensor repeated = groups.repeat({1, 128, 1});
    return torch::relu(joint->forward(torch::cat({items, repeated}, 2)));
  };
  const auto by_merge = [&] { return merge->forward(items, groups); };

  const torch::Tensor repeated = groups.repeat({1, 128, 1});
  const double concat_megabytes = megabytes(
      {repeated,
       torch::cat({items, repeated}, 2),
       joint->forward(torch::cat({items, repeated}, 2))});
  const double merge_megabytes = megabytes(
      {merge->linear1->forward(items),
       merge->linear2->forward(groups),
       by_merge()});
  const double difference =
      (by_concat() - by_merge()).abs().max().item<double>();
  const double concat_time = milliseconds(by_concat);
  const double merge_time = milliseconds(by_merge);
  fmt::print(
      "\n                       intermediate tensors      time\n"
      "tile and concatenate   {:>17.2f} MB {:>6.2f} ms\n"
      "merge by broadcasting  {:>17.2f} MB {:>6.2f} ms\n"
      "The results differ by {:.1g} at most.\n\n",
      concat_megabytes,
      concat_time,
      merge_megabytes,
      merge_time,
      difference);
  holds = holds && difference < 1e-5 && merge_megabytes < concat_megabytes;

  // %% [markdown]
  // ## The ugly: shapes that broadcast by accident hide a mistake

  // %%
  const torch::Tensor a = torch::tensor({1.f, 2.f}).unsqueeze(1);
  const torch::Tensor b = torch::tensor({1.f, 2.f});
  const torch::Tensor rows = (a + b).sum(0);
  fmt::print(
      "(1, 2) as [2, 1] plus (1, 2) as [2] sums up to {}, not 6: the result\n"
      "has the shape [{}]. Naming the dimension shows it: sum(0) gives two\n"
      "numbers, {} and {}.\n",
      (a + b).sum().item<float>(),
      fmt::join((a + b).sizes(), ", "),
      rows[0].item<float>(),
      rows[1].item<float>());
  holds = holds && (a + b).sum().item<float>() == 12 && rows.numel() == 2;
  return holds ? 0 : 1;
} catch (const std::exception& error) {
  fmt::print(stderr, "error: {}\n", tern::message_of(error));
  return 1;
}
