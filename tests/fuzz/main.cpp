// Runs the parser that TERN_FUZZ_TARGET names on arbitrary bytes; ./dev fuzz
// runs it.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string_view>

#include "tern/tests/fuzz/targets.h"

namespace {

const tern::fuzz::Target& chosen() {
  const char* name = std::getenv("TERN_FUZZ_TARGET");
  for (const tern::fuzz::Target& target : tern::fuzz::targets()) {
    if (name != nullptr && target.name == name) return target;
  }
  std::fputs("TERN_FUZZ_TARGET has to be one of:", stderr);
  for (const tern::fuzz::Target& target : tern::fuzz::targets()) {
    std::fprintf(stderr, " %s", target.name.data());
  }
  std::fputs("\n", stderr);
  std::exit(2);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const tern::fuzz::Target& target = chosen();
  target.run({data, size});
  return 0;
}
