#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <torch/csrc/jit/ir/ir.h>

#include "tern/learner/model.h"

namespace tern {

/// Where two traces of one network differ, which were made with inputs of
/// different sizes.
struct SizeDifference {
  std::string place;   // "aten::slice in its module encoder"
  std::string first;   // "takes 1"
  std::string second;  // "2"
};

/// The numbers of a trace that follow the sizes of its inputs.
///
/// What `forward` computes from sizes, such as the rows of the state that an
/// LSTM makes, is a plain number in a trace, and wrong for inputs of other
/// sizes. A second trace, with inputs of other sizes, tells which numbers these
/// are: those that differ. Each is a multiple of a size that some tensor has at
/// this point in both traces, and can be read there. Private to Tern, for
/// exports and Predictor.
class TracedSizes {
 public:
  /// \param trace  The graph of a module that `trace` gave. Must not change
  ///               but by `insert_into`.
  explicit TracedSizes(std::shared_ptr<const torch::jit::Graph> trace)
      : trace_(std::move(trace)) {}

  /// Compares with another trace of the network, operator by operator, and
  /// finds out where each number that differs can be read. What has been found
  /// before must be right there too.
  /// \return The first difference that is none of sizes, or whose size is not
  ///         to be found.
  std::optional<SizeDifference> learn(const torch::jit::Graph& other);
  /// Compares likewise, without finding anything new.
  std::optional<SizeDifference> compare(const torch::jit::Graph& other) const;

  /// How many numbers are known to follow a size.
  size_t count() const { return sources_.size(); }

  /// Replaces the numbers by operators that read the sizes.
  /// \param graph  The trace, or a copy of it.
  void insert_into(torch::jit::Graph& graph) const;

 private:
  class Comparison;
  /// What a number is: a multiple of a size that can be read, or in the shape of
  /// a view -1, which infers it.
  struct Source {
    bool is_inferred = false;
    const torch::jit::Value* tensor = nullptr;
    int64_t dimension = 0;
    int64_t factor = 1;
  };
  using Argument = std::pair<const torch::jit::Node*, size_t>;

  std::shared_ptr<const torch::jit::Graph> trace_;
  std::map<Argument, Source> sources_;
};

/// For each input, whether its first dimension is the batch: those that have as
/// many rows as the first input. None, if that has no rows.
std::vector<bool> have_samples(const Tensors& inputs);

/// The samples of a batch over and over, until there are `size`. Inputs that
/// have no samples stay as they are.
Tensors with_batch_size(const Tensors& inputs, int64_t size);

}  // namespace tern
