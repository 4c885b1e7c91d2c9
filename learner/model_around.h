#pragma once

#include <memory>
#include <vector>

#include "tern/learner/model.h"

namespace tern {

/// Base of wrappers that run a model in a different way: forwards everything
/// except `forward` to the model. Private to Tern.
class ModelAround : public ModelImpl {
 public:
  explicit ModelAround(const Model& model) : model_(model) {}

  std::vector<ModelTensor> parameters() const override {
    return model_.parameters();
  }
  std::vector<ModelTensor> buffers() const override { return model_.buffers(); }
  std::vector<ModelTensor> state() const override { return model_.state(); }
  void train(bool on) override { model_.train(on); }
  FixedModes fixed_modes() const override { return model_.fixed_modes(); }
  bool is_training() const override { return model_.is_training(); }
  void to(torch::Device device) override { model_.to(device); }
  std::shared_ptr<torch::nn::Module> module() const override {
    return model_.module();
  }

 protected:
  Model model_;
};

}  // namespace tern
