#include "tern/learner/distributed/convert_sync_batchnorm.h"

#include <mutex>
#include <unordered_map>

#include <ATen/ops/batch_norm_native.h>
#include <fmt/format.h>
#include <torch/library.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/types.h>

#include "tern/learner/distributed/sync_batch_norm.h"

namespace tern {

namespace {

using MaybeTensor = std::optional<torch::Tensor>;

// Known by their running means, which stay the same tensors when a model moves
// to another device or type.
class Converted {
 public:
  void add(
      const torch::Tensor& running_mean,
      const std::shared_ptr<Communicator>& ranks) {
    const std::lock_guard lock(mutex_);
    std::erase_if(entries_, [](const auto& entry) {
      return entry.second.tensor.expired();
    });
    entries_.insert_or_assign(
        running_mean.unsafeGetTensorImpl(),
        Entry{WeakTensor(running_mean.getIntrusivePtr()), ranks});
  }

  /// Null if it was not converted, or its ranks are gone.
  std::shared_ptr<Communicator> ranks_of(const torch::Tensor& running_mean) {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(running_mean.unsafeGetTensorImpl());
    return found == entries_.end() ? nullptr : found->second.ranks.lock();
  }

 private:
  // Weak, but as long as it is there no other tensor gets the same address.
  using WeakTensor =
      c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  struct Entry {
    WeakTensor tensor;
    std::weak_ptr<Communicator> ranks;
  };

  std::mutex mutex_;
  std::unordered_map<c10::TensorImpl*, Entry> entries_;
};

Converted& converted() {
  static Converted instance;
  return instance;
}

torch::Tensor batch_norm(
    const torch::Tensor& input,
    const MaybeTensor& weight,
    const MaybeTensor& bias,
    const MaybeTensor& running_mean,
    const MaybeTensor& running_var,
    bool training,
    double momentum,
    double eps,
    bool cudnn_enabled) {
  if (training && running_mean && running_mean->defined()) {
    const auto ranks = converted().ranks_of(*running_mean);
    if (ranks && ranks->world_size() > 1) {
      return sync_batch_norm(
          input,
          weight.value_or(torch::Tensor()),
          bias.value_or(torch::Tensor()),
          *running_mean,
          running_var.value_or(torch::Tensor()),
          momentum,
          eps,
          ranks);
    }
  }
  return at::native::batch_norm(
      input,
      weight,
      bias,
      running_mean,
      running_var,
      training,
      momentum,
      eps,
      cudnn_enabled);
}

// LibTorch computes batch_norm by others of its operations alone, so that the
// place before them is free. A program that converts nothing does not get here.
void take_over_batch_norm() {
  static std::once_flag done;
  std::call_once(done, [] {
    for (const auto key :
         {c10::DispatchKey::AutogradCPU, c10::DispatchKey::AutogradCUDA}) {
      // Never given back: other threads may be calling it when a program ends.
      auto* const library = new torch::Library(
          torch::Library::IMPL,
          "aten",
          key,
          __FILE__,
          __LINE__);
      library->impl("batch_norm", &batch_norm);
    }
  });
}

template <class Norm>
void convert_if_is(
    torch::nn::Module& module,
    const std::string& name,
    const std::shared_ptr<Communicator>& ranks) {
  auto* const norm = module.as<Norm>();
  if (!norm) return;
  TORCH_CHECK_VALUE(
      norm->running_mean.defined(),
      fmt::format(
          "[convert_sync_batchnorm] \"{}\" keeps no running statistics, so "
          "that validation, which ranks do at their own pace, would need the "
          "others too; make it with track_running_stats(true).",
          name));
  converted().add(norm->running_mean, ranks);
}

}  // namespace

Model convert_sync_batchnorm(
    Model model,
    const std::shared_ptr<Communicator>& ranks) {
  TORCH_CHECK_VALUE(
      ranks,
      "[convert_sync_batchnorm] the ranks are null; connect a ProcessGroup, or "
      "use Learner::to_distributed({.sync_batch_norm = true}).");
  const auto root = model.module();
  TORCH_CHECK_NOT_IMPLEMENTED(
      root,
      "[convert_sync_batchnorm] a TorchScript module calls its BatchNorm on "
      "its own ways; expected a model written in C++.");
  take_over_batch_norm();
  for (const auto& item : root->named_modules()) {
    convert_if_is<torch::nn::BatchNorm1d>(*item.value(), item.key(), ranks);
    convert_if_is<torch::nn::BatchNorm2d>(*item.value(), item.key(), ranks);
    convert_if_is<torch::nn::BatchNorm3d>(*item.value(), item.key(), ranks);
  }
  return model;
}

}  // namespace tern
