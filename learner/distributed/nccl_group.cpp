#include "tern/learner/distributed/nccl_group.h"

#include <cstdlib>
#include <dlfcn.h>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace tern {

namespace {

MakeNcclGroup open_library() {
  std::vector<std::string> places;
  if (const char* named = std::getenv("TERN_NCCL_LIBRARY")) {
    places.emplace_back(named);
  } else {
    places = {"libtern_nccl.so", TERN_NCCL_BUILT, TERN_NCCL_INSTALLED};
  }
  std::vector<std::string> reasons;
  for (const std::string& place : places) {
    void* const library = ::dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    void* const function = library ? ::dlsym(library, kMakeNcclGroup) : nullptr;
    if (function) return reinterpret_cast<MakeNcclGroup>(function);
    const char* const reason = ::dlerror();
    reasons.emplace_back(reason ? reason : "no reason was given");
  }
  TORCH_CHECK(
      false,
      fmt::format(
          "training on several GPUs needs libtern_nccl.so, which is part of "
          "Tern where LibTorch has CUDA; name it with TERN_NCCL_LIBRARY: {}",
          fmt::join(reasons, "; ")));
}

}  // namespace

c10::intrusive_ptr<c10d::Backend> make_nccl_group(
    const c10::intrusive_ptr<c10d::Store>& store,
    int rank,
    int world_size,
    std::chrono::milliseconds timeout) {
  static const MakeNcclGroup make = open_library();
  c10::intrusive_ptr<c10d::Backend> group;
  make(store, rank, world_size, timeout, group);
  return group;
}

}  // namespace tern
