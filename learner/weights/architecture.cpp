#include "tern/learner/weights/architecture.h"

#include "tern/learner/model.h"

namespace tern {

std::optional<Architecture> architecture_of(const Model& model) {
  const auto* module =
      dynamic_cast<const HasArchitecture*>(model.module().get());
  if (module == nullptr) return std::nullopt;
  return module->architecture();
}

}  // namespace tern
