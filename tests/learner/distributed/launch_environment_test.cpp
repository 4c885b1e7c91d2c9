#include "tern/learner/distributed/launch_environment.h"

#include <cstdlib>
#include <map>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/tests/support/expect_error.h"

namespace tern::launch_environment_test {
namespace {

using Variables = std::map<std::string, const char*>;

const Variables& variables() {
  static const Variables all = {
      {"RANK", "5"},
      {"WORLD_SIZE", "8"},
      {"LOCAL_RANK", "1"},
      {"MASTER_ADDR", "10.0.0.7"},
      {"MASTER_PORT", "29501"},
      {"TORCHELASTIC_RUN_ID", "job"},
      {"TORCHELASTIC_RESTART_COUNT", "2"},
      {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
  return all;
}

// Sets torchrun's variables with changes; a null value removes a variable.
void set_environment(const Variables& changes) {
  Variables all = variables();
  for (const auto& [name, value] : changes) all[name] = value;
  for (const auto& [name, value] : all) {
    if (value) {
      ::setenv(name.c_str(), value, 1);
    } else {
      ::unsetenv(name.c_str());
    }
  }
}

class LaunchEnvironmentTest : public testing::Test {
 protected:
  // Other tests of this process would read leftover variables as torchrun's.
  void TearDown() override {
    for (const auto& [name, value] : variables()) ::unsetenv(name.c_str());
  }
};

TEST_F(LaunchEnvironmentTest, ReadsTorchrunsVariables) {
  set_environment({});
  const auto environment = LaunchEnvironment::read();
  EXPECT_EQ(environment.rank, 5);
  EXPECT_EQ(environment.world_size, 8);
  EXPECT_EQ(environment.local_rank, 1);
  EXPECT_EQ(environment.master_address, "10.0.0.7");
  EXPECT_EQ(environment.master_port, 29501);
  EXPECT_EQ(environment.run, "job");
  EXPECT_EQ(environment.restarts, 2);
  EXPECT_TRUE(environment.has_agent_store);
  EXPECT_TRUE(environment.is_distributed());
}

TEST_F(LaunchEnvironmentTest, IsOneProcessWithoutTheVariables) {
  set_environment(
      {{"RANK", nullptr},
       {"WORLD_SIZE", nullptr},
       {"LOCAL_RANK", nullptr},
       {"MASTER_ADDR", nullptr},
       {"MASTER_PORT", nullptr}});
  EXPECT_FALSE(LaunchEnvironment::read().is_distributed());
}

TEST_F(LaunchEnvironmentTest, NamesAMissingVariable) {
  for (const char* name :
       {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"}) {
    set_environment({{name, nullptr}});
    expect_error<c10::ValueError>(
        [] { LaunchEnvironment::read(); },
        {name, "is not", "torchrun"});
  }
}

TEST_F(LaunchEnvironmentTest, NamesAnInvalidVariable) {
  const std::pair<const char*, const char*> kWrong[] = {
      {"RANK", "8"},
      {"RANK", "-1"},
      {"RANK", "two"},
      {"WORLD_SIZE", "0"},
      {"WORLD_SIZE", "99999999999999999999"},
      {"LOCAL_RANK", "6"},
      {"MASTER_PORT", "65536"},
      {"MASTER_PORT", "29500 "},
      {"TORCHELASTIC_RESTART_COUNT", "-2"}};
  for (const auto& [name, value] : kWrong) {
    set_environment({{name, value}});
    expect_error<c10::ValueError>(
        [] { LaunchEnvironment::read(); },
        {name, value, "expected a number"});
  }
}

}  // namespace
}  // namespace tern::launch_environment_test
