#include "tern/kernels/open_module.h"

#include <cstdlib>
#include <dlfcn.h>
#include <string>
#include <vector>

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tern {

// Folders, in files that CMake writes.
extern const char* const kModulesBuilt;
extern const char* const kModulesInstalled;

void* open_module(
    const char* library,
    const char* named_by,
    const char* what,
    const char* function) {
  const std::string name = library;
  std::vector<std::string> places;
  if (const char* named = std::getenv(named_by)) {
    places.emplace_back(named);
  } else {
    places = {
        name,
        kModulesBuilt + ("/" + name),
        kModulesInstalled + ("/" + name)};
  }
  std::vector<std::string> reasons;
  for (const std::string& place : places) {
    void* const opened = ::dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    void* const found = opened ? ::dlsym(opened, function) : nullptr;
    if (found) return found;
    const char* const reason = ::dlerror();
    reasons.emplace_back(reason ? reason : "no reason was given");
  }
  TORCH_CHECK(
      false,
      fmt::format(
          "{} needs {}, which is part of Tern where LibTorch has CUDA; name it "
          "with {}: {}",
          what,
          library,
          named_by,
          fmt::join(reasons, "; ")));
}

}  // namespace tern
