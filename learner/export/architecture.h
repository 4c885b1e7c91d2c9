#pragma once

#include <optional>
#include <string>

namespace tern {

class Model;

/// Describes how to rebuild a network: the arguments of `build_model` in
/// vision/models.
struct Architecture {
  std::string name;            // "resnet18"
  std::string options = "{}";  // a JSON object: {"num_classes": 10}

  friend bool operator==(const Architecture&, const Architecture&) = default;
};

/// A module that can be rebuilt from its name. To support a custom network in
/// `Learner::export_model` and Predictor, derive it from this class and from
/// torch::nn::Module:
///
///   struct NetImpl : torch::nn::Module, HasArchitecture {
///     Architecture architecture() const override { return {"my_net"}; }
///     ...
///   };
///   register_architecture("my_net", [](const Architecture&) {
///     return Model(std::make_shared<NetImpl>());
///   });
class HasArchitecture {
 public:
  virtual ~HasArchitecture() = default;
  /// An empty name means that this module cannot be rebuilt.
  virtual Architecture architecture() const = 0;
};

/// Returns the architecture of the model's module, if it has one.
std::optional<Architecture> architecture_of(const Model& model);

}  // namespace tern
