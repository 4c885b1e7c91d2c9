#include "tern/learner/distributed/sync_batch_norm.h"

#include <mutex>
#include <unordered_map>
#include <vector>

#include <ATen/ops/batch_norm_native.h>
#include <ATen/ops/batch_norm_update_stats.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/native_batch_norm_backward.h>
#include <c10/core/GradMode.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "tern/kernels/check.h"

namespace tern {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using MaybeTensor = std::optional<torch::Tensor>;

MaybeTensor if_defined(const torch::Tensor& tensor) {
  return tensor.defined() ? MaybeTensor(tensor) : std::nullopt;
}

torch::ScalarType statistics_type(const torch::Tensor& input) {
  return input.scalar_type() == torch::kDouble ? torch::kDouble : torch::kFloat;
}

torch::Tensor to_type(const torch::Tensor& tensor, torch::ScalarType type) {
  return tensor.defined() ? tensor.to(type) : tensor;
}

// Statistics per channel over all ranks, bit-identical on all of them.
struct Statistics {
  torch::Tensor mean, variance;  // [C] kDouble; the variance is biased
  torch::Tensor count;           // 0-dim kDouble
};

Statistics joint_statistics(const torch::Tensor& input, Communicator& ranks) {
  const torch::NoGradGuard no_grad;
  const int64_t channels = input.size(1);
  const auto [mean, variance] = at::batch_norm_update_stats(
      input.to(statistics_type(input)),
      {},
      {},
      /*momentum=*/0);
  // Each rank fills its own row; the sum over ranks contains all rows.
  const torch::Tensor rows = torch::zeros(
      {ranks.world_size(), 2 * channels + 1},
      input.options().dtype(torch::kDouble));
  const torch::Tensor row = rows[ranks.rank()];
  row.narrow(0, 0, channels).copy_(mean);
  row.narrow(0, channels, channels).copy_(variance);
  row[2 * channels].fill_(static_cast<double>(input.numel() / channels));
  ranks.all_reduce(rows);

  const torch::Tensor means = rows.narrow(1, 0, channels);
  const torch::Tensor variances = rows.narrow(1, channels, channels);
  const torch::Tensor counts = rows.narrow(1, 2 * channels, 1);
  const torch::Tensor count = counts.sum();
  const torch::Tensor shares = counts / count;
  const torch::Tensor joint = (shares * means).sum(0);
  return {
      joint,
      (shares * (variances + (means - joint).square())).sum(0),
      count};
}

void move_running(
    const torch::Tensor& running,
    const torch::Tensor& value,
    double momentum) {
  if (!running.defined()) return;
  const torch::NoGradGuard no_grad;
  torch::Tensor(running).lerp_(value.to(running.scalar_type()), momentum);
}

// Keeps the ranks alive until backward.
struct RanksHolder final : torch::CustomClassHolder {
  explicit RanksHolder(std::shared_ptr<Communicator> given)
      : ranks(std::move(given)) {}
  std::shared_ptr<Communicator> ranks;
};

class NormalizeOverRanks
    : public torch::autograd::Function<NormalizeOverRanks> {
 public:
  static torch::Tensor forward(
      AutogradContext* context,
      const torch::Tensor& input,
      const MaybeTensor& given_weight,
      const MaybeTensor& given_bias,
      const Statistics& statistics,
      double eps,
      const std::shared_ptr<Communicator>& ranks) {
    const torch::Tensor weight = given_weight.value_or(torch::Tensor());
    const torch::Tensor bias = given_bias.value_or(torch::Tensor());
    const torch::ScalarType type = statistics_type(input);
    const torch::Tensor mean = statistics.mean.to(type);
    const torch::Tensor variance = statistics.variance.to(type);
    context->save_for_backward(
        {input, weight, mean, variance, statistics.count});
    context->saved_data["eps"] = eps;
    context->saved_data["ranks"] =
        c10::IValue::make_capsule(c10::make_intrusive<RanksHolder>(ranks));
    return std::get<0>(at::native_batch_norm(
        input,
        to_type(weight, type),
        to_type(bias, type),
        mean,
        variance,
        /*training=*/false,
        /*momentum=*/0,
        eps));
  }

  // Mean and variance depend on every input of every rank, so a rank's gradient
  // contains two sums over all ranks.
  static variable_list backward(
      AutogradContext* context,
      const variable_list& grads) {
    TORCH_CHECK_NOT_IMPLEMENTED(
        !c10::GradMode::is_enabled(),
        "[sync_batch_norm] double backward is not supported; omit "
        "create_graph, or train without sync_batch_norm.");
    const variable_list saved = context->get_saved_variables();
    const torch::Tensor &input = saved[0], &mean = saved[2],
                        &variance = saved[3], &count = saved[4];
    const torch::ScalarType type = mean.scalar_type();
    const torch::Tensor weight = to_type(saved[1], type);
    const double eps = context->saved_data["eps"].toDouble();
    const torch::Tensor x = input.to(type);
    // As in eval mode, with mean and variance as constants.
    auto [grad_input, grad_weight, grad_bias] = at::native_batch_norm_backward(
        grads[0].to(type).contiguous(input.suggest_memory_format()),
        x,
        weight,
        mean,
        variance,
        {},
        {},
        /*train=*/false,
        eps,
        {true, true, true});

    const torch::Tensor sums =
        torch::stack({grad_bias, grad_weight}).to(torch::kDouble);
    c10::static_intrusive_pointer_cast<RanksHolder>(
        context->saved_data["ranks"].toCapsule())
        ->ranks->all_reduce(sums);
    const torch::Tensor means = (sums / count).to(type);
    torch::Tensor factor = (variance + eps).rsqrt();
    const torch::Tensor slope = means[1] * factor;
    const torch::Tensor offset = means[0] - slope * mean;
    if (weight.defined()) factor = factor * weight;
    std::vector<int64_t> along_channels(x.dim(), 1);
    along_channels[1] = -1;
    grad_input.sub_((factor * offset).view(along_channels));
    grad_input.addcmul_(x, (factor * slope).view(along_channels), -1);

    const bool is_affine = weight.defined();
    const auto of_parameter = [&](const torch::Tensor& grad) {
      return is_affine ? grad.to(saved[1].scalar_type()) : torch::Tensor();
    };
    return {
        grad_input.to(input.scalar_type()),
        of_parameter(grad_weight),
        of_parameter(grad_bias),
        {},
        {},
        {}};
  }
};

}  // namespace

torch::Tensor sync_batch_norm(
    const torch::Tensor& input,
    const torch::Tensor& weight,
    const torch::Tensor& bias,
    const torch::Tensor& running_mean,
    const torch::Tensor& running_var,
    double momentum,
    double eps,
    const std::shared_ptr<Communicator>& ranks) {
  TERN_CHECK_VALUE(
      ranks && input.defined() && input.is_floating_point() &&
          input.dim() >= 2 && input.numel() > 0,
      "[sync_batch_norm] the input is [{}] and the process group is {}; "
      "expected a floating-point tensor [N, C, ...] with at least one value "
      "per channel on every rank, and a process group.",
      input.defined() ? fmt::format("{}", fmt::join(input.sizes(), ", "))
                      : "undefined",
      ranks ? "not null" : "null");
  const Statistics statistics = joint_statistics(input, *ranks);
  move_running(running_mean, statistics.mean, momentum);
  move_running(
      running_var,
      statistics.variance * statistics.count / (statistics.count - 1),
      momentum);
  return NormalizeOverRanks::apply(
      input,
      if_defined(weight),
      if_defined(bias),
      statistics,
      eps,
      ranks);
}

void SyncBatchNormImpl::_check_input_dim(const torch::Tensor& input) {
  TERN_CHECK_VALUE(
      input.dim() >= 2 && input.size(1) == options.num_features(),
      "[SyncBatchNorm] the input is [{}]; expected [N, {}, ...].",
      fmt::join(input.sizes(), ", "),
      options.num_features());
}

double SyncBatchNormImpl::step_momentum() {
  if (num_batches_tracked.defined()) num_batches_tracked += 1;
  if (options.momentum()) return *options.momentum();
  return num_batches_tracked.defined()
             ? 1.0 / num_batches_tracked.item<double>()
             : 0;
}

torch::Tensor SyncBatchNormImpl::forward(const torch::Tensor& input) {
  if (!is_training() || !communicator_ || communicator_->world_size() == 1) {
    return BatchNorm2dImpl::forward(input);
  }
  _check_input_dim(input);
  return sync_batch_norm(
      input,
      weight,
      bias,
      running_mean,
      running_var,
      step_momentum(),
      options.eps(),
      communicator_);
}

std::shared_ptr<torch::nn::Module> SyncBatchNormImpl::clone(
    const std::optional<torch::Device>& device) const {
  const auto copy = std::make_shared<SyncBatchNormImpl>(options, communicator_);
  const auto of_base = BatchNorm2dImpl::clone(device);
  static_cast<BatchNorm2dImpl&>(*copy) =
      dynamic_cast<const BatchNorm2dImpl&>(*of_base);
  return copy;
}

void SyncBatchNormImpl::pretty_print(std::ostream& stream) const {
  stream << "tern::SyncBatchNorm(" << options.num_features()
         << ", eps=" << options.eps() << ")";
}

// ---- The BatchNorms of a model ----

namespace {

// A weak reference, which prevents the address from being reused.
using WeakTensor =
    c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;

// The converted modules are identified by their running means, which remain the
// same tensors when a model is moved or converted.
struct Converted {
  struct Entry {
    WeakTensor tensor;
    std::weak_ptr<Communicator> ranks;
  };
  std::mutex mutex;
  std::unordered_map<c10::TensorImpl*, Entry> entries;
};

Converted& converted() {
  static Converted instance;
  return instance;
}

void convert(
    const torch::Tensor& running_mean,
    const std::shared_ptr<Communicator>& ranks) {
  auto& [mutex, entries] = converted();
  const std::lock_guard lock(mutex);
  std::erase_if(entries, [](const auto& entry) {
    return entry.second.tensor.expired();
  });
  entries.insert_or_assign(
      running_mean.unsafeGetTensorImpl(),
      Converted::Entry{WeakTensor(running_mean.getIntrusivePtr()), ranks});
}

// Null if the module was not converted, or if its ranks no longer exist.
std::shared_ptr<Communicator> ranks_of(const torch::Tensor& running_mean) {
  auto& [mutex, entries] = converted();
  const std::lock_guard lock(mutex);
  const auto found = entries.find(running_mean.unsafeGetTensorImpl());
  return found == entries.end() ? nullptr : found->second.ranks.lock();
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
    const auto ranks = ranks_of(*running_mean);
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

// LibTorch composes batch_norm from other operations, so its autograd keys can
// be overridden. Called only if a model is converted.
void take_over_batch_norm() {
  static std::once_flag done;
  std::call_once(done, [] {
    for (const auto key :
         {c10::DispatchKey::AutogradCPU, c10::DispatchKey::AutogradCUDA}) {
      // Never freed, because other threads may be calling it when the program
      // ends.
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
  TERN_CHECK_VALUE(
      norm->running_mean.defined(),
      "[convert_sync_batchnorm] \"{}\" keeps no running statistics, so "
      "validation, which each rank does independently, would need the other "
      "ranks; create it with track_running_stats(true).",
      name);
  convert(norm->running_mean, ranks);
}

}  // namespace

Model convert_sync_batchnorm(
    Model model,
    const std::shared_ptr<Communicator>& ranks) {
  TORCH_CHECK_VALUE(
      ranks,
      "[convert_sync_batchnorm] the communicator is null; connect a "
      "ProcessGroup, or use Learner::to_distributed({.sync_batch_norm = "
      "true}).");
  const auto root = model.module();
  TORCH_CHECK_NOT_IMPLEMENTED(
      root,
      "[convert_sync_batchnorm] the model is TorchScript, whose BatchNorm "
      "layers cannot be replaced; expected a model written in C++.");
  take_over_batch_norm();
  for (const auto& item : root->named_modules()) {
    convert_if_is<torch::nn::BatchNorm1d>(*item.value(), item.key(), ranks);
    convert_if_is<torch::nn::BatchNorm2d>(*item.value(), item.key(), ranks);
    convert_if_is<torch::nn::BatchNorm3d>(*item.value(), item.key(), ranks);
  }
  return model;
}

}  // namespace tern
