#include <torch/library.h>

#include "tern/kernels/images/normalize_images.h"
#include "tern/kernels/optim/fused_step.h"
#include "tern/kernels/optim/unscale_and_check.h"

// The kernels as torch.ops.tern.*, in a separate library (libtern_ops.so):
//   torch.ops.load_library("libtern_ops.so")
//   torch.ops.tern.fused_adam_(params, grads, [], steps, m, v, [], lr=1e-3)
namespace tern {
namespace {

torch::Tensor normalize_images_op(
    const torch::Tensor& images,
    at::ArrayRef<double> mean,
    at::ArrayRef<double> stddev,
    torch::ScalarType dtype) {
  return normalize_images(images, mean, stddev, dtype);
}

void fused_sgd_op(
    at::TensorList params,
    at::TensorList grads,
    at::TensorList weights,
    at::TensorList steps,
    at::TensorList momentum_buffers,
    double lr,
    double momentum,
    double dampening,
    double weight_decay,
    bool nesterov,
    bool decoupled_weight_decay,
    const std::optional<torch::Tensor>& grad_scale,
    const std::optional<torch::Tensor>& found_inf) {
  fused_sgd_(
      {params, grads, weights, steps},
      momentum_buffers,
      {.lr = lr,
       .momentum = momentum,
       .dampening = dampening,
       .weight_decay = weight_decay,
       .nesterov = nesterov,
       .decoupled_weight_decay = decoupled_weight_decay},
      {grad_scale, found_inf});
}

void fused_adam_op(
    at::TensorList params,
    at::TensorList grads,
    at::TensorList weights,
    at::TensorList steps,
    at::TensorList exp_avgs,
    at::TensorList exp_avg_sqs,
    at::TensorList max_exp_avg_sqs,
    double lr,
    double beta1,
    double beta2,
    double eps,
    double weight_decay,
    bool amsgrad,
    bool decoupled_weight_decay,
    const std::optional<torch::Tensor>& grad_scale,
    const std::optional<torch::Tensor>& found_inf) {
  fused_adam_(
      {params, grads, weights, steps},
      exp_avgs,
      exp_avg_sqs,
      max_exp_avg_sqs,
      {.lr = lr,
       .beta1 = beta1,
       .beta2 = beta2,
       .eps = eps,
       .weight_decay = weight_decay,
       .amsgrad = amsgrad,
       .decoupled_weight_decay = decoupled_weight_decay},
      {grad_scale, found_inf});
}

}  // namespace

TORCH_LIBRARY(tern, m) {
  m.def(
      "normalize_images(Tensor images, float[] mean, float[] stddev, *, "
      "ScalarType dtype=float) -> Tensor");
  m.def(
      "unscale_and_check_(Tensor(a!)[] grads, Tensor inv_scale, "
      "Tensor(b!) found_inf) -> ()");
  m.def("check_finite(Tensor[] grads, Tensor(a!) found_inf) -> ()");
  m.def(
      "fused_sgd_(Tensor(a!)[] params, Tensor[] grads, Tensor(b!)[] weights, "
      "Tensor(c!)[] steps, Tensor(d!)[] momentum_buffers, *, float lr=1e-3, "
      "float momentum=0, float dampening=0, float weight_decay=0, "
      "bool nesterov=False, bool decoupled_weight_decay=False, "
      "Tensor? grad_scale=None, Tensor? found_inf=None) -> ()");
  m.def(
      "fused_adam_(Tensor(a!)[] params, Tensor[] grads, Tensor(b!)[] weights, "
      "Tensor(c!)[] steps, Tensor(d!)[] exp_avgs, Tensor(e!)[] exp_avg_sqs, "
      "Tensor(f!)[] max_exp_avg_sqs, *, float lr=1e-3, float beta1=0.9, "
      "float beta2=0.999, float eps=1e-8, float weight_decay=0, "
      "bool amsgrad=False, bool decoupled_weight_decay=False, "
      "Tensor? grad_scale=None, Tensor? found_inf=None) -> ()");
}

// One implementation for all devices: the kernels dispatch on their tensors.
TORCH_LIBRARY_IMPL(tern, CompositeExplicitAutograd, m) {
  m.impl("normalize_images", normalize_images_op);
  m.impl("unscale_and_check_", unscale_and_check_);
  m.impl("check_finite", check_finite);
  m.impl("fused_sgd_", fused_sgd_op);
  m.impl("fused_adam_", fused_adam_op);
}

}  // namespace tern
