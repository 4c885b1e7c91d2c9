#!/usr/bin/env bash
# sanitize.sh SANITIZER TOOL TESTS: compute-sanitizer over the kernels' tests in that
# folder. Exit code 0 if it finds nothing.
set -euo pipefail
sanitizer=$1 tool=$2 tests=$3

# PyTorch's allocator cuts tensors from large blocks, within which no access is a
# wrong one; and the tests of long lists take minutes under the sanitizer.
export PYTORCH_NO_CUDA_MEMORY_CACHING=1
options=(--report-api-errors no --launch-timeout 120 --error-exitcode 9 --print-limit 20)
filter='-*LargeBatches*:*LongLists*:*ListsLongerThanOneLaunch*:*2To31*'
case $tool in
  memcheck) options+=(--padding 64 --kernel-name kns=tern) ;;
  racecheck) options+=(--kernel-name kns=tern) ;;
  # It has to see what PyTorch's kernels write, so it looks at all of them, and at
  # two tests alone.
  initcheck) filter=FusedOptimizerCudaTest.SgdEqualsReference:UnscaleAndCheckCudaTest.EqualsCpuBitForBit ;;
esac
cd "$tests"
exec "$sanitizer" --tool "$tool" "${options[@]}" ./kernels_on_a_gpu_test --gtest_filter="$filter"
