#include "tern/callbacks/nvtx.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tern/callbacks/profiler.h"
#include "tern/tests/support/tiny.h"

// The tool of this test is linked in, under the name by which NVTX looks for
// one.
#define NVTX_STATIC_INJECTION_IMPL
extern "C" int (*InitializeInjectionNvtx2_fnptr)(const void* (*)(uint32_t));
#include <nvtx3/nvToolsExt.h>

namespace tern::nvtx_test {
namespace {

// What a tool like Nsight Systems sees: the names of ranges as they open, "-"
// as they close.
std::vector<std::string> seen;

int NVTX_API push(const char* name) {
  seen.emplace_back(name);
  return 0;
}

int NVTX_API pop() {
  seen.emplace_back("-");
  return 0;
}

int NVTX_API attach(NvtxGetExportTableFunc_t table) {
  NvtxFunctionTable functions = nullptr;
  unsigned int size = 0;
  static_cast<const NvtxExportTableCallbacks*>(table(NVTX_ETID_CALLBACKS))
      ->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &functions, &size);
  *functions[NVTX_CBID_CORE_RangePushA] =
      reinterpret_cast<NvtxFunctionPointer>(push);
  *functions[NVTX_CBID_CORE_RangePop] =
      reinterpret_cast<NvtxFunctionPointer>(pop);
  return 1;
}

std::unique_ptr<Learner> profiled() {
  auto learn = std::make_unique<Learner>(
      testing_support::point_data(),
      testing_support::point_net(),
      LearnerOptions{.sink = silent()});
  learn->add<Profiler>({.nvtx = true, .show = false});
  return learn;
}

TEST(Nvtx, AToolSeesThePhasesOfAStepInTheirOrder) {
  seen.clear();
  profiled()->fit(1);
  const std::vector<std::string> expected = {
      "other",
      "data wait, to device",
      "forward",
      "loss",
      "backward",
      "step",
      "data wait, to device"};
  std::erase(seen, "-");
  seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
  ASSERT_GE(seen.size(), expected.size());
  seen.resize(expected.size());
  EXPECT_EQ(seen, expected);
}

TEST(Nvtx, EveryRangeIsClosed) {
  seen.clear();
  profiled()->fit(2);
  int open = 0;
  for (const std::string& event : seen) {
    open += event == "-" ? -1 : 1;
    ASSERT_TRUE(open == 0 || open == 1) << event;
  }
  EXPECT_EQ(open, 0);
}

}  // namespace
}  // namespace tern::nvtx_test

decltype(InitializeInjectionNvtx2_fnptr) InitializeInjectionNvtx2_fnptr =
    tern::nvtx_test::attach;
