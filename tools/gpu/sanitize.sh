#!/usr/bin/env bash
# sanitize.sh SANITIZER TOOL TESTS: runs compute-sanitizer on the kernels' tests in the
# folder TESTS. Exit code 0 if it finds nothing.
set -euo pipefail
sanitizer=$1 tool=$2 tests=$3

# PyTorch's allocator places tensors in large blocks, within which the sanitizer does
# not detect invalid accesses, so it is disabled. Tests of long lists are left out,
# since they take minutes under the sanitizer.
export PYTORCH_NO_CUDA_MEMORY_CACHING=1
options=(--report-api-errors no --launch-timeout 120 --error-exitcode 9 --print-limit 20)
filter='-*LargeBatches*:*LongLists*:*ListsLongerThanOneLaunch*:*2To31*'
case $tool in
  memcheck) options+=(--padding 64 --kernel-name kns=tern) ;;
  racecheck) options+=(--kernel-name kns=tern) ;;
  # initcheck must see what PyTorch's kernels write, so it checks all kernels, but runs
  # only two tests.
  initcheck) filter=FusedOptimizerCudaTest.SgdEqualsReference:UnscaleAndCheckCudaTest.EqualsCpuBitForBit ;;
esac
cd "$tests"
exec "$sanitizer" --tool "$tool" "${options[@]}" ./kernels_on_a_gpu_test --gtest_filter="$filter"
