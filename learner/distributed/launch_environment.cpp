#include "tern/learner/distributed/launch_environment.h"

#include <charconv>
#include <cstdlib>
#include <limits>
#include <string_view>

#include <c10/util/Exception.h>
#include <torch/types.h>

#include "tern/kernels/check.h"

namespace tern {

namespace {

constexpr const char* kNeeded[] =
    {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"};

constexpr const char* kCure =
    "start the program with torchrun --no-python --nproc-per-node N "
    "./program, or unset the variables to train in one process.";

const char* variable(const char* name) {
  const char* const value = std::getenv(name);
  return value && *value ? value : nullptr;
}

int64_t number(const char* name, int64_t least, int64_t most) {
  const std::string_view text = variable(name);
  int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  TERN_CHECK_VALUE(
      error == std::errc() && at == end && value >= least && value <= most,
      "[LaunchEnvironment] the variable {} is \"{}\"; expected a number in "
      "{}..{}: {}",
      name,
      text,
      least,
      most,
      kCure);
  return value;
}

}  // namespace

LaunchEnvironment LaunchEnvironment::read() {
  LaunchEnvironment result;
  const char *present = nullptr, *missing = nullptr;
  for (const char* name : kNeeded) (variable(name) ? present : missing) = name;
  if (!present) return result;
  TERN_CHECK_VALUE(
      !missing,
      "[LaunchEnvironment] the variable {} is set but {} is not: {}",
      present,
      missing,
      kCure);
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  result.world_size = number("WORLD_SIZE", 1, kMost);
  result.rank = number("RANK", 0, result.world_size - 1);
  result.local_rank = number("LOCAL_RANK", 0, result.rank);
  result.master_address = variable("MASTER_ADDR");
  result.master_port = static_cast<uint16_t>(number("MASTER_PORT", 1, 65535));
  if (const char* run = variable("TORCHELASTIC_RUN_ID")) result.run = run;
  if (variable("TORCHELASTIC_RESTART_COUNT")) {
    result.restarts = number("TORCHELASTIC_RESTART_COUNT", 0, kMost);
  }
  const char* const agent = variable("TORCHELASTIC_USE_AGENT_STORE");
  result.has_agent_store = agent && std::string_view(agent) == "True";
  return result;
}

}  // namespace tern
