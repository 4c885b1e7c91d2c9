#pragma once

#include <optional>
#include <string>

namespace tern {

class Model;

/// How a network can be built again: what `build_model` of vision/models takes.
struct Architecture {
  std::string name;            // "resnet18"
  std::string options = "{}";  // a JSON object: {"num_classes": 10}

  friend bool operator==(const Architecture&, const Architecture&) = default;
};

/// A module that can be built again by its name. Derive from it, beside
/// torch::nn::Module, to have `Learner::export_model` and Predictor carry a
/// network of your own:
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
  /// One without a name: it cannot be built again after all.
  virtual Architecture architecture() const = 0;
};

/// That of the model's module, if it has one.
std::optional<Architecture> architecture_of(const Model& model);

}  // namespace tern
