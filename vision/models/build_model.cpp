#include "tern/vision/models/build_model.h"

#include <map>
#include <mutex>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tern/vision/models/matting_base.h"
#include "tern/vision/models/matting_refine.h"
#include "tern/vision/models/resnet.h"
#include "tern/vision/models/simple_cnn.h"
#include "tern/vision/vision_learner.h"

namespace tern {

namespace {

struct Builders {
  std::mutex mutex;
  std::map<std::string, ModelBuilder> by_name = {
      {"matting_base", build_matting_base},
      {"matting_refine", build_matting_refine},
      {"resnet", build_resnet},
      {"resnet18", build_resnet},
      {"resnet34", build_resnet},
      {"resnet50", build_resnet},
      {"resnet101", build_resnet},
      {"simple_cnn", build_simple_cnn},
      {"vision_model", build_vision_model},
  };
};

Builders& builders() {
  static Builders all;
  return all;
}

ModelBuilder find_builder(const std::string& name) {
  const std::lock_guard lock(builders().mutex);
  const auto at = builders().by_name.find(name);
  return at == builders().by_name.end() ? nullptr : at->second;
}

}  // namespace

Model build_model(const Architecture& architecture) {
  const ModelBuilder builder = find_builder(architecture.name);
  TORCH_CHECK_VALUE(
      builder,
      fmt::format(
          "[build_model] there is no architecture '{}'; expected one of {}. "
          "Call register_architecture for a network of your own.",
          architecture.name,
          fmt::join(architectures(), ", ")));
  return builder(architecture);
}

void register_architecture(const std::string& name, ModelBuilder builder) {
  TORCH_CHECK_VALUE(
      !name.empty() && builder,
      "[register_architecture] the name or the builder is empty; expected a "
      "name and a function that makes a Model.");
  const std::lock_guard lock(builders().mutex);
  TORCH_CHECK_VALUE(
      builders().by_name.emplace(name, std::move(builder)).second,
      fmt::format(
          "[register_architecture] the name '{}' is taken; choose another.",
          name));
}

std::vector<std::string> architectures() {
  const std::lock_guard lock(builders().mutex);
  std::vector<std::string> names;
  for (const auto& item : builders().by_name) names.push_back(item.first);
  return names;
}

}  // namespace tern
