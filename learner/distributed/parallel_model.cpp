#include "tern/learner/distributed/parallel_model.h"

#include <functional>
#include <utility>

#include <fmt/format.h>
#include <torch/nn/module.h>
#include <torch/types.h>

#include "tern/learner/distributed/data_parallel.h"
#include "tern/learner/learner.h"
#include "tern/learner/learner_parts.h"

namespace tern {

namespace {

class ParallelModel final : public ModelImpl {
 public:
  ParallelModel(Model model, std::vector<torch::Device> devices)
      : model_(std::move(model)), devices_(std::move(devices)) {}

  Tensors forward(const Tensors& inputs) override {
    const std::vector<Tensors> parts = split(inputs);
    if (parts.size() < 2) return model_.forward(inputs);
    auto places = devices_;
    places.resize(parts.size(), places[0]);
    const auto replicas = detail::replicate(module(), places);
    std::vector<Tensors> outputs(parts.size());
    std::vector<std::function<void()>> jobs;
    for (size_t i = 0; i < parts.size(); ++i) {
      jobs.emplace_back([&, i] {
        outputs[i] = model_.with_module(replicas[i]).forward(parts[i]);
      });
    }
    detail::run_together(std::move(jobs));
    return join(outputs);
  }

  std::vector<ModelTensor> parameters() const override {
    return model_.parameters();
  }
  std::vector<ModelTensor> buffers() const override { return model_.buffers(); }
  std::vector<ModelTensor> state() const override { return model_.state(); }
  void train(bool on) override { model_.train(on); }
  bool is_training() const override { return model_.is_training(); }
  void to(torch::Device device) override { model_.to(device); }
  std::shared_ptr<torch::nn::Module> module() const override {
    return model_.module();
  }
  std::shared_ptr<ModelImpl> with_module(
      const std::shared_ptr<torch::nn::Module>& module) const override {
    return model_.with_module(module).impl();
  }

 private:
  // The inputs of each replica, on its device; fewer than there are devices for
  // a small batch.
  std::vector<Tensors> split(const Tensors& inputs) const {
    std::vector<Tensors> parts;
    for (const torch::Tensor& input : inputs) {
      detail::check_can_be_split(input);
      TORCH_CHECK_VALUE(
          input.size(0) == inputs[0].size(0),
          fmt::format(
              "[to_parallel] one input has {} samples and another {}; expected "
              "as many in each.",
              inputs[0].size(0),
              input.size(0)));
      const Tensors chunks = input.chunk(static_cast<int64_t>(devices_.size()));
      parts.resize(chunks.size());
      for (size_t i = 0; i < chunks.size(); ++i) {
        parts[i].push_back(chunks[i].to(devices_[i], /*non_blocking=*/true));
      }
    }
    return parts;
  }

  Tensors join(const std::vector<Tensors>& of_replicas) const {
    Tensors joined;
    for (size_t k = 0; k < of_replicas[0].size(); ++k) {
      Tensors pieces;
      for (const Tensors& outputs : of_replicas) {
        TORCH_CHECK_VALUE(
            outputs.at(k).dim() > 0,
            "[to_parallel] the model answers with a 0-dim tensor; expected "
            "[N, ...]. Compute the loss outside the model.");
        pieces.push_back(outputs[k].to(devices_[0], /*non_blocking=*/true));
      }
      joined.push_back(torch::cat(pieces));
    }
    return joined;
  }

  Model model_;
  std::vector<torch::Device> devices_;
};

}  // namespace

Model parallel_model(const Model& model, std::vector<torch::Device> devices) {
  const auto module = model.module();
  TORCH_CHECK_NOT_IMPLEMENTED(
      module,
      "[to_parallel] a TorchScript module cannot be replicated; expected a "
      "model written in C++.");
  detail::check_devices(*module, devices);
  // Not a parallel model in a parallel model.
  Model plain = model.with_module(module);
  return Model(
      std::make_shared<ParallelModel>(std::move(plain), std::move(devices)));
}

Learner& Learner::to_parallel() {
  return to_parallel(detail::all_cuda_devices());
}

Learner& Learner::to_parallel(const std::vector<torch::Device>& devices) {
  TORCH_CHECK(
      !parts_->is_fitting,
      "[Learner::to_parallel] this Learner is training; call it before or "
      "after fit.");
  parts_->model = parallel_model(parts_->model, devices);
  parts_->is_parallel = devices.size() > 1;
  return *this;
}

}  // namespace tern
