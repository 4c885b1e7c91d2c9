// The only file that uses c10d::Reducer, which is internal to PyTorch. It is
// used as in torch/nn/parallel/distributed.py.

#include "tern/learner/distributed/gradient_reducer.h"

#include <algorithm>
#include <limits>
#include <sstream>
#include <utility>

#include <fmt/ranges.h>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <torch/version.h>

#include "tern/kernels/check.h"

namespace tern {

// Without a Logger, the Reducer dereferences a null pointer in some of its
// paths.
struct GradientReducer::Impl {
  std::shared_ptr<::c10d::Reducer> reducer;
  std::shared_ptr<::c10d::Logger> logger;
};

namespace {

std::string listed(const Tensors& parameters) {
  std::string text = fmt::format("{} parameters:", parameters.size());
  for (const torch::Tensor& p : parameters) {
    text += fmt::format(
        " {}[{}]",
        c10::toString(p.scalar_type()),
        fmt::join(p.sizes(), ","));
  }
  return text;
}

void check(const Tensors& parameters, const GradientReducerOptions& options) {
  TORCH_CHECK_VALUE(
      !parameters.empty(),
      "[GradientReducer] there are no parameters; expected the parameters of a "
      "model that require a gradient.");
  for (size_t i = 0; i < parameters.size(); ++i) {
    TERN_CHECK_VALUE(
        parameters[i].defined() && parameters[i].requires_grad(),
        "[GradientReducer] parameter {} requires no gradient; omit frozen "
        "parameters.",
        i);
  }
  TERN_CHECK_VALUE(
      options.bucket_megabytes >= 1,
      "[GradientReducer] bucket_megabytes is {}; expected 1 or more.",
      options.bucket_megabytes);
  TERN_CHECK_VALUE(
      !options.compress_to || options.compress_to == torch::kHalf ||
          options.compress_to == torch::kBFloat16,
      "[GradientReducer] compress_to is {}; expected kHalf or kBFloat16.",
      c10::toString(*options.compress_to));
}

// Returns the indices in the Reducer's error message, which contains
// "... did not receive grad for rank 0: 2 3".
std::vector<size_t> unused_parameters(const std::string& text) {
  const std::string before = "did not receive grad for rank ";
  const size_t found = text.find(before);
  if (found == std::string::npos) return {};
  std::istringstream numbers(text.substr(text.find(':', found) + 1));
  std::vector<size_t> result;
  for (size_t index = 0; numbers >> index;) result.push_back(index);
  return result;
}

using Group = c10::intrusive_ptr<::c10d::ProcessGroup>;

// As torch's fp16_compress_hook and bf16_compress_hook. Divides after rounding,
// so that a gradient that overflows stays infinite.
class CompressHook final : public ::c10d::CppCommHookInterface<Group> {
 public:
  CompressHook(Group group, torch::ScalarType dtype)
      : CppCommHookInterface(std::move(group)), dtype_(dtype) {}

  c10::intrusive_ptr<c10::ivalue::Future> runHook(
      ::c10d::GradBucket& bucket) override {
    const torch::Tensor& gradients = bucket.getBuffer();
    Tensors message = {
        gradients.to(dtype_, /*non_blocking=*/false, /*copy=*/true)
            .div_(state_->getSize())};
    const auto sent = state_->allreduce(message)->getFuture();
    return sent->then(
        [gradients](c10::ivalue::Future& sum) {
          torch::Tensor(gradients).copy_(sum.value().toTensorVector()[0]);
          return c10::IValue(gradients);
        },
        sent->elementType());
  }

 private:
  torch::ScalarType dtype_;
};

}  // namespace

GradientReducer::GradientReducer(
    std::shared_ptr<ProcessGroup> group,
    const Tensors& parameters,
    const GradientReducerOptions& options)
    : group_(std::move(group)), find_unused_(options.find_unused_parameters) {
  check(parameters, options);
  group_->check_equal("model", listed(parameters));
  Tensors values;
  for (const torch::Tensor& p : parameters) values.push_back(p.detach());
  group_->broadcast(values);

  // Starts with a single bucket, because after one backward pass (see
  // `backward_of_zeros`) the Reducer rebuilds its buckets in the order in which
  // gradients arrived. If parameters may be unused, it never rebuilds them, so
  // this starts with the bucket sizes of PyTorch's DDP.
  const auto cap = static_cast<size_t>(options.bucket_megabytes) << 20;
  const std::vector<bool> no_sparse(parameters.size(), false);
  const std::vector<size_t> limits =
      find_unused_
          ? std::vector<size_t>{::c10d::kDefaultFirstBucketBytes, cap}
          : std::vector<size_t>{std::numeric_limits<size_t>::max() / 2};
  auto buckets = std::get<0>(
      ::c10d::compute_bucket_assignment_by_size(parameters, limits, no_sparse));
  std::reverse(buckets.begin(), buckets.end());
  const auto connected = Group::reclaim_copy(&group_->gradients());
  auto reducer = std::make_shared<::c10d::Reducer>(
      parameters,
      std::move(buckets),
      connected,
      no_sparse,
      static_cast<int64_t>(cap),
      find_unused_,
      /*gradient_as_bucket_view=*/false,
      std::unordered_map<size_t, std::string>(),
      ::c10d::kDefaultFirstBucketBytes,
      /*skip_all_reduce_unused_params=*/false,
#if TORCH_VERSION_MINOR >= 11
      /*use_python_reducer=*/false,
      /*bucket_bytes_cap_list=*/std::vector<int64_t>());
#else
      /*use_python_reducer=*/false);
#endif
  auto logger = std::make_shared<::c10d::Logger>(reducer);
  reducer->set_logger(logger);
  if (options.compress_to) {
    reducer->register_comm_hook(
        std::make_unique<CompressHook>(connected, *options.compress_to));
  }
  impl_ = std::make_unique<Impl>(Impl{std::move(reducer), std::move(logger)});
  if (!find_unused_) backward_of_zeros(parameters);
}

// Three or more ranks sum a bucket in parts, and the sums depend on the
// position of a gradient in the bucket. The first backward pass of a fit would
// use different buckets from later passes, and a resumed run begins with a
// different pass. Therefore the Reducer first receives a pass with zero
// gradients, which arrive in the order that PyTorch's DDP assumes initially:
// from the last parameter to the first.
void GradientReducer::backward_of_zeros(const Tensors& parameters) {
  const torch::AutoGradMode with_gradients(true);
  Tensors kept;  // gradients of an incomplete window
  torch::Tensor zero;
  for (const torch::Tensor& p : parameters) {
    kept.push_back(std::exchange(p.mutable_grad(), torch::Tensor()));
    // Autograd starts with the last operation.
    const torch::Tensor none = p.sum() * 0;
    zero =
        zero.defined() ? zero + none.to(torch::kFloat) : none.to(torch::kFloat);
  }
  before_forward();
  before_backward({zero});
  zero.backward();
  after_backward();
  for (size_t i = 0; i < parameters.size(); ++i) {
    parameters[i].mutable_grad() = kept[i];
  }
}

GradientReducer::~GradientReducer() {
  try {
    impl_->reducer->remove_autograd_hooks();
    impl_.reset();
  } catch (...) {  // NOLINT: a broken group, which fit has reported
  }
}

void GradientReducer::before_forward() {
  impl_->logger->set_runtime_stats_and_log();
  impl_->reducer->prepare_for_forward();
  after_backward();
}

// The buckets are rebuilt only once, after the first pass.
void GradientReducer::after_backward(
    const std::function<std::string(size_t)>& name_of) {
  std::vector<size_t> unused;
  try {
    impl_->reducer->rebuild_buckets();
    return;
  } catch (const c10::Error& error) {
    unused = unused_parameters(error.what_without_backtrace());
    if (unused.empty()) throw;
  }
  std::vector<std::string> names;
  names.reserve(unused.size());
  for (const size_t i : unused) {
    names.push_back(name_of ? name_of(i) : std::to_string(i));
  }
  TORCH_CHECK(
      false,
      fmt::format(
          "[GradientReducer] in this step {} got no gradient on rank {}: a "
          "branch or an output of the model did not contribute to the loss, "
          "and the other ranks are waiting for it. {}freeze the parameters "
          "that are never used.",
          fmt::join(names, ", "),
          group_->rank(),
          find_unused_ ? "Use every output in the loss, or "
                       : "Set DistributedOptions::reducer"
                         ".find_unused_parameters, or "));
}

CommunicationTimes GradientReducer::times() const {
  const auto numbers = impl_->logger->get_ddp_logging_data().ints_map;
  const auto seconds = [&](const char* name) {
    const auto found = numbers.find(name);
    return found == numbers.end() ? 0
                                  : 1e-9 * static_cast<double>(found->second);
  };
  return {
      .backward = seconds("avg_backward_compute_time"),
      .communication = seconds("avg_backward_comm_time"),
      .hidden = seconds("avg_backward_compute_comm_overlap_time")};
}

void GradientReducer::before_backward(const Tensors& outputs) {
  impl_->reducer->prepare_for_backward(find_unused_ ? outputs : Tensors{});
}

}  // namespace tern
