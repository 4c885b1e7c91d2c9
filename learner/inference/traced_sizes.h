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

/// A difference between two traces of a network with inputs of different sizes.
struct SizeDifference {
  std::string place;   // "aten::slice in its module encoder"
  std::string first;   // "takes 1"
  std::string second;  // "2"
};

/// The numbers of a trace that depend on the sizes of its inputs.
///
/// A number that `forward` computes from a size, such as the number of rows of
/// an LSTM's initial state, is a constant in a trace, and wrong for inputs of
/// other sizes. Such numbers are found because they differ in a second trace
/// with inputs of other sizes. Each must be a multiple of a size that some
/// tensor has at this point in both traces; it is then read from this tensor.
/// Private to Tern, for exports and Predictor.
class TracedSizes {
 public:
  /// \param trace  The graph of a module from `trace`. Only `insert_into` may
  ///               change it.
  explicit TracedSizes(std::shared_ptr<const torch::jit::Graph> trace)
      : trace_(std::move(trace)) {}

  /// Compares the trace with another trace of the network, operator by
  /// operator, and finds a tensor from which each number that differs can be
  /// read. Sources that were found before must also fit the other trace.
  /// \return The first difference that is not a multiple of a size, or is a
  ///         multiple of a size that no tensor has.
  std::optional<SizeDifference> learn(const torch::jit::Graph& other);
  /// Compares like `learn`, without adding sources.
  std::optional<SizeDifference> compare(const torch::jit::Graph& other) const;

  /// Returns the number of constants that are known to depend on a size.
  size_t count() const { return sources_.size(); }

  /// Replaces these constants by operators that read the sizes.
  /// \param graph  The trace, or a copy of it.
  void insert_into(torch::jit::Graph& graph) const;

 private:
  class Comparison;
  /// The source of a number: a multiple of a size that can be read, or, in the
  /// shape of a view, -1, so that the view infers it.
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

/// Returns for each input whether its first dimension is the batch: true if it
/// has as many rows as the first input. All are false if the first input has no
/// rows.
std::vector<bool> have_samples(const Tensors& inputs);

/// Repeats the samples of a batch up to `size` samples. Inputs without samples
/// stay unchanged.
Tensors with_batch_size(const Tensors& inputs, int64_t size);

}  // namespace tern
