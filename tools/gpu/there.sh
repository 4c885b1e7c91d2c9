#!/usr/bin/env bash
# bash .gpu/there.sh [SECONDS [PART...]]: runs what ./dev gpu pack has packed, within
# SECONDS (430), on a machine with a GPU, in the root of the copied tree. The parts
# run in this order, whatever the order of the arguments:
#   facts     compilers, packages, driver, speed of a copy and of a matrix product
#   build     builds on that machine instead of using the packed programs; only if
#             named, or if the packed programs do not run
#   tests     all GPU tests
#   combos    random training runs, like ./dev combos
#   variants  the optimizer's kernels, unchanged and with each patch of
#             tools/gpu/variants, tested and then timed alternately
#   rows      comparisons with PyTorch, the most important first
#   profile   kernel times of an optimizer step and of a training step of ResNet-50
#   sanitize  compute-sanitizer on the kernels' tests
#   converge  accuracies of five precisions with three seeds
# Each step has its own time limit. A part that fails does not stop the others, unless
# there is no GPU or no program to run. Results are written to $OUT: summary.txt,
# facts.txt, gpu.md (docs/gpu.md with the measured rows) and logs.tgz. The exit code is
# 0 if every part succeeded; a part that was not packed counts as failed. DEVICE=cpu
# rehearses everything without a GPU, with skipped tests and small rows. ROWS="NAME..."
# selects the rows. ROUNDS limits the rounds of each row, ROW_SECONDS its time, and
# COMBOS_SECONDS the time of the part combos.
set -uo pipefail

limit=${1:-430}
[[ $limit =~ ^[0-9]+$ ]] || { echo "SECONDS is '$limit'; expected a number, then names of parts." >&2; exit 2; }
[ $# -eq 0 ] || shift
all_parts="facts build tests combos variants rows profile sanitize converge"
parts=${*:-facts tests combos variants rows profile sanitize converge}
for part in $parts; do
  [[ " $all_parts " == *" $part "* ]] || { echo "There is no part '$part'; there are: $all_parts" >&2; exit 2; }
done

root=$PWD packed=$PWD/.gpu
device=${DEVICE:-cuda}
python=${TERN_PYTHON:-python3}
work=${TMPDIR:-/tmp}/tern-there
export OUT=${OUT:-$work/out}
logs=$work/logs pre=$work/pre
rm -rf "$work/logs" "$work/pre"
mkdir -p "$OUT" "$logs"
rm -f "$OUT"/{summary.txt,facts.txt,gpu.md,logs.tgz}
export PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
export NCCL_SOCKET_IFNAME=${NCCL_SOCKET_IFNAME:-lo} NCCL_IB_DISABLE=1
# Makes tests fail without a GPU, since a skipped test would count as a success.
[ "$device" = cpu ] || export TERN_NEEDS_GPU=1
TERN_COMMIT=$(cat "$packed/commit.txt" 2>/dev/null || echo "unknown commit")
export TERN_COMMIT

# ---- Functions of all parts ----

seconds_left() { echo $((limit - SECONDS)); }
is_wanted() { [[ " $parts " == *" $1 "* ]]; }
say() { printf '%4d s  %s\n' "$SECONDS" "$*" | tee -a "$OUT/summary.txt"; }
save_logs() { tar -C "$work" -czf "$work/logs.tgz" logs && cp "$work/logs.tgz" "$OUT/logs.tgz"; }
# within SECONDS: prints the smaller of SECONDS and the seconds left.
within() { echo $(($1 < $(seconds_left) ? $1 : $(seconds_left))); }

# step NAME SECONDS COMMAND... : runs the command for at most SECONDS, with its output
# in logs/NAME.log, and adds a line to the summary.
step() {
  local name=$1 most code started=$SECONDS note=""
  most=$(within "$2")
  shift 2
  if [ "$most" -lt 5 ]; then
    say "$name: NOT RUN, no time was left"
    return 99
  fi
  timeout -k 3 "$most" "$@" >"$logs/$name.log" 2>&1
  code=$?
  [[ $code != 124 && $code != 137 ]] || note=", TIME OUT"
  say "$name: rc $code, $((SECONDS - started)) s$note"
  return "$code"
}

declare -A outcome
# note PART CODE: the outcome of a part is the first failure of its steps.
note() {
  local said=$2
  [[ ! $said =~ ^[0-9]+$ ]] || said="rc $said"
  [ "${outcome[$1]:-rc 0}" != "rc 0" ] || outcome[$1]=$said
}

# Runs at every exit: prints the outcome of each part and saves the logs.
finish() {
  local code=$? part
  for part in $all_parts; do
    is_wanted "$part" || continue
    say "part $part: ${outcome[$part]:-not run}"
    [ "${outcome[$part]:-}" = "rc 0" ] || [ "$code" != 0 ] || code=1
  done
  [ "$device" != cpu ] ||
    say "This was a rehearsal on the CPU: the GPU tests were skipped, and no figure counts."
  save_logs
  exit "$code"
}
trap finish EXIT

# ---- Paths ----

torch=$("$python" -c 'import importlib.util as util
print(util.find_spec("torch").submodule_search_locations[0])') || {
  say "$python has no torch; set TERN_PYTHON to a Python that has it."
  exit 1
}
site=$(dirname "$torch")
# The disk cache is cold: reads 3 GB of libraries while the facts are printed.
(timeout 60 cat "$torch"/lib/libtorch_cuda.so "$torch"/lib/libtorch_cpu.so "$site"/nvidia/cu13/lib/lib{cublas,cublasLt,cudart,nvrtc}.so* \
  "$site"/nvidia/cudnn/lib/*.so* "$site"/nvidia/nccl/lib/*.so* >/dev/null 2>&1) &
warming=$!
if [ -e "$packed/pre.tar.xz" ]; then
  # Unpacked by Python, since xz may be missing.
  "$python" -W ignore -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])' "$packed/pre.tar.xz" "$work"
fi
export LD_LIBRARY_PATH=$torch/lib:$site/nvidia/cu13/lib:$site/nvidia/nccl/lib:$site/nvidia/cudnn/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
use_programs() {
  pre=$1
  export TERN_CUDA_GRAPH_LIBRARY=$pre/libtern_cuda_graph.so TERN_NCCL_LIBRARY=$pre/libtern_nccl.so
}
use_programs "$pre"
[ ! -d "$packed/data" ] || export TERN_DATA=$packed/data

# ---- Facts, and whether the packed programs run at all ----

export device
print_facts() {
  local python=$1
  date
  uname -a
  head -2 /etc/os-release
  nproc
  grep -E 'MemTotal|MemAvailable' /proc/meminfo
  df -h / /tmp
  echo "PATH=$PATH"
  echo "LD_LIBRARY_PATH=$LD_LIBRARY_PATH"
  env | grep -E 'CUDA|TORCH|NCCL|OMP'
  command -v gcc g++ clang++ cmake ninja ctest ccache git nvcc compute-sanitizer ncu nsys cuobjdump python3
  g++ --version | head -1
  cmake --version | head -1
  ninja --version
  nvcc --version | tail -1
  ldd --version | head -1
  ls -d /usr/local/cuda*
  ls -d /usr/local/cuda/lib64/lib{cublas,cudart,nvrtc}.so
  dpkg-query -W libssl-dev zlib1g-dev nlohmann-json3-dev libgtest-dev libgloo-dev libbenchmark-dev
  ls -d /dev/nvidia*
  [ "$device" != cuda ] || nvidia-smi
  [ "$device" != cuda ] || nvidia-smi -q -d MEMORY,CLOCK,ECC | head -60
  "$python" - "$device" <<'PYTHON'
import sys
import time

start = time.time()
import torch

print("import torch", round(time.time() - start, 1), "s", torch.__version__, torch.__file__)
if sys.argv[1] != "cuda":
    sys.exit()
start = time.time()
torch.zeros(1).cuda()
print("CUDA", round(time.time() - start, 1), "s", torch.cuda.get_device_name(), torch.cuda.mem_get_info())


def milliseconds(work, times=10):
    work()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(times):
        work()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / times


source = torch.empty(1 << 30, device="cuda")
target = torch.empty_like(source)
print("copy %.2f TB/s" % (8 * source.numel() / milliseconds(lambda: target.copy_(source)) / 1e9), end=", ")
matrix = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
print("matrix product in bf16 %.0f TFLOP/s" % (2 * 8192**3 / milliseconds(lambda: matrix @ matrix) / 1e9))
PYTHON
}

if is_wanted facts; then
  export -f print_facts
  # shellcheck disable=SC2016
  step facts 60 bash -c 'print_facts "$1"' - "$python"
  note facts $?
  say "facts: $(grep -hE '^(import torch|CUDA|copy)' "$logs/facts.log" | cut -c1-160 | tr '\n' ' ')"
  cp "$logs/facts.log" "$OUT/facts.txt"
  if [ "$device" = cuda ] && ! grep -q '^CUDA' "$logs/facts.log"; then
    say "PyTorch finds no GPU, so nothing else is run; facts.txt has the error."
    exit 1
  fi
fi
wait "$warming"

# A test program ends with this code when all of its tests were skipped.
all_skipped=77
must_build=""
timeout "$(within 60)" "$pre/tests/kernels_on_a_gpu_test" \
  --gtest_filter='UnscaleAndCheckCudaTest.EqualsCpuBitForBit' >"$logs/smoke.log" 2>&1
code=$?
if [ "$code" != 0 ] && ! { [ "$device" = cpu ] && [ "$code" = "$all_skipped" ]; }; then
  must_build=yes
  say "The packed programs do not run here, so they are built: $(tail -3 "$logs/smoke.log" | tr '\n' ' ')"
  ldd "$pre/tests/kernels_on_a_gpu_test" 2>&1 | grep -E 'not found|version' | tee -a "$logs/smoke.log"
  is_wanted build || parts="build $parts"
fi

# ---- The build that docs/gpu.md describes ----

if is_wanted build; then
  step build "${BUILD_SECONDS:-330}" ./dev gpu build
  code=$?
  note build "$code"
  if [ "$code" = 0 ]; then
    bash tools/gpu/list_tests.sh build-gpu >build-gpu/tests.txt
    use_programs "$root/build-gpu"
  elif [ -n "$must_build" ]; then
    say "There are no programs to run."
    tail -20 "$logs/build.log"
    exit 1
  fi
fi

# ---- The GPU tests: one process per file, all concurrently; memory tests alone ----

program_of() { awk -v test="$1" '$1 == test { print $2 }' "$pre/tests.txt"; }

run_test() {
  (cd "$pre/tests" && OMP_NUM_THREADS=1 TORCH_SHOW_CPP_STACKTRACES=1 \
    timeout -k 3 "$(within "$2")" "./$(program_of "$1")" --file="$1") >"$logs/${1//\//_}.log" 2>&1
}

# note_tests PART CODE: if all tests were skipped, that is a failure, except in a
# rehearsal.
note_tests() {
  if [ "$device" = cpu ] && [ "$2" = "$all_skipped" ]; then
    note "$1" 0
  else
    note "$1" "$2"
  fi
}

# count_of LOG VERDICT
count_of() { grep -cE "^\[ +$2 +\] .*\([0-9]+ ms\)" "$1"; }

report_test() {
  local log=$logs/${1//\//_}.log code=$2
  say "$1: $(count_of "$log" OK) ok, $(count_of "$log" FAILED) failed," \
    "$(count_of "$log" SKIPPED) skipped, rc $code"
  # Prints the first lines of each failure, which usually suffice to fix it.
  if [ "$code" != 0 ] && [ "$code" != "$all_skipped" ]; then
    grep -E '^\[  FAILED  \] .*\([0-9]+ ms\)|Failure$|Segmentation|terminate called|CUDA error|what\(\)' -A 3 "$log" |
      cut -c1-200 | head -40 | tee -a "$OUT/summary.txt"
  fi
}

if is_wanted tests; then
  if [ ! -s "$pre/tests.txt" ]; then
    say "tests: not packed"
    note tests "not packed"
  else
    started=$SECONDS
    declare -A running=()
    while read -r test _; do
      [ "$test" != callbacks/memory_cuda ] || continue # it uses all memory of the device
      run_test "$test" 90 &
      running[$test]=$!
    done <"$pre/tests.txt"
    for test in "${!running[@]}"; do
      wait "${running[$test]}"
      code=$?
      note_tests tests "$code"
      report_test "$test" "$code"
    done
    if grep -q '^callbacks/memory_cuda ' "$pre/tests.txt"; then
      run_test callbacks/memory_cuda 60
      code=$?
      note_tests tests "$code"
      report_test callbacks/memory_cuda "$code"
    fi
    say "tests: ${outcome[tests]:-rc 0}, $((SECONDS - started)) s"
    # Runs each failed test again, alone and with synchronous launches, so that the
    # error names the kernel that caused it.
    while read -r test _; do
      log=$logs/${test//\//_}.log
      failed=$(grep -E '^\[  FAILED  \] .*\([0-9]+ ms\)' "$log" | sed -E 's/^\[  FAILED  \] ([^ ,]+).*/\1/' |
        sort -u | head -4 | paste -sd:)
      [ -z "$failed" ] || [ "$(seconds_left)" -lt 200 ] ||
        CUDA_LAUNCH_BLOCKING=1 TORCH_SHOW_CPP_STACKTRACES=1 \
          step "again_${test//\//_}" 30 "$pre/tests/$(program_of "$test")" --gtest_filter="$failed"
    done <"$pre/tests.txt"
    save_logs
  fi
fi

# ---- Random training runs, in several processes ----

if is_wanted combos; then
  program=$pre/tests/learner_combos_combos_test
  if [ ! -e "$program" ]; then
    say "combos: not packed"
    note combos "not packed"
  else
    declare -A drawing=()
    for i in 1 2 3 4 5 6; do
      mkdir -p "$work/combos/$i"
      (cd "$work/combos/$i" && OMP_NUM_THREADS=1 TERN_COMBOS_DEVICE=$device TERN_RANDOM_SECONDS=${COMBOS_SECONDS:-40} \
        CUBLAS_WORKSPACE_CONFIG=:4096:8 timeout -k 3 "$(within 120)" "$program") >"$logs/combos_$i.log" 2>&1 &
      drawing[$i]=$!
    done
    for i in "${!drawing[@]}"; do
      wait "${drawing[$i]}"
      code=$?
      note combos "$code"
      say "combos $i: rc $code, $(grep -E '^[0-9]+ cases' "$logs/combos_$i.log")"
      grep -E '^seed ' -A 2 "$logs/combos_$i.log" | cut -c1-300 | head -12 | tee -a "$OUT/summary.txt"
    done
    save_logs
  fi
fi

# ---- Variants of the optimizer's kernels, alternating with those of the tree ----

if is_wanted variants; then
  if [ ! -d "$work/pre/variants" ]; then
    say "variants: not packed"
    note variants "not packed"
  elif [ -z "$(ls -A "$work/pre/variants")" ]; then
    say "variants: there are none to measure"
    note variants 0
  elif [ -n "$must_build" ]; then
    say "variants: the packed programs do not run here"
    note variants "not run"
  else
    timed=("$pre")
    for variant in "$work"/pre/variants/*; do
      step "test_of_variant_${variant##*/}" 40 "$variant/tests/kernels_on_a_gpu_test" \
        --gtest_filter='FusedOptimizerCudaTest.*'
      code=$?
      note_tests variants "$code"
      # A variant that fails its test is not timed.
      [ "$code" != 0 ] && [ "$code" != "$all_skipped" ] || timed+=("$variant")
    done
    for round in 1 2 3; do
      for variant in "${timed[@]}"; do
        name=$([ "$variant" = "$pre" ] && echo tree || echo "${variant##*/}")
        for job in adam adam_resnet50; do
          step "${job}_of_${name}_$round" 20 "$variant/tests/bench/gpu_timed" --job "$job" --device "$device" \
            --json "$logs/${job}_of_${name}_$round.json"
          note variants $?
          say "  $(cat "$logs/${job}_of_${name}_$round.json" 2>/dev/null)"
        done
      done
    done
  fi
fi

# ---- Rows, the most important first ----

# The last row may take a minute to compile.
rows=(adam_fused adam_resnet50 mlp_graph mnist_cnn_graph resnet50_fp16 resnet50_amp augment resnet50_bf16
  resnet50_fp32 matting_base_fp16 resnet50_fp16_graph checkerboard_fp16 resnet18_fp16 feed resnet50_fp16_compile)
[ -z "${ROWS:-}" ] || read -r -a rows <<<"$ROWS"
# Seconds reserved for the parts after this one.
for_converge=$(is_wanted converge && echo 50 || echo 0)
for_profile=$(is_wanted profile && echo 70 || echo 0)
reserve=$(($(is_wanted sanitize && echo 60 || echo 0) + for_profile + for_converge))
if is_wanted rows; then
  if [ ! -e "$pre/tests/bench/gpu_timed" ]; then
    say "rows: not packed"
    note rows "not packed"
  else
    time=$(($(seconds_left) - reserve))
    if [ "$time" -lt 30 ]; then
      say "rows: NOT RUN, $time s were left for them"
      time=0
    fi
    step rows "$time" "$python" tests/bench/peers/gpu.py "${rows[@]}" --rounds "${ROUNDS:-2}" \
      --device "$device" --build "$pre" --limit "${ROW_SECONDS:-60}" --deadline "$((time - 10))"
    note rows $?
    # The lines of the tables, and the rows that were not measured.
    grep -E '^### |^\| [^w-]|^[a-z0-9_]+: ' "$logs/rows.log" | cut -c1-160 | tee -a "$OUT/summary.txt"
    save_logs
  fi
fi

# ---- Profile: the duration of each kernel, and details of the optimizer's ----

# profile NAME SECONDS OPTION... PROGRAM...: runs Nsight Compute without changing the
# clocks.
profile() {
  local name=$1 most=$2
  shift 2
  step "$name" "$most" "$ncu" --clock-control none --target-processes all "$@"
}

if is_wanted profile; then
  ncu=$(PATH=$PATH:/usr/local/cuda/bin:/opt/nvidia/nsight-compute command -v ncu || true)
  if [ -z "$ncu" ] || [ "$device" = cpu ]; then
    say "profile: there is no ncu on this machine, or no GPU"
    note profile "$([ "$device" = cpu ] && echo 0 || echo "no ncu")"
  else
    program=$pre/tests/bench/gpu_timed durations=(--metrics gpu__time_duration.sum --csv)
    # Excludes the launches that create the tensors.
    of_a_step='regex:step_kernel|check_kernel|advance_kernel|amp_update|clamp|addcmul'
    for job in adam adam_resnet50; do
      profile "kernels_of_$job" 30 "${durations[@]}" --kernel-name "$of_a_step" --launch-skip 12 --launch-count 24 \
        "$program" --job "$job" --steps 8 --json "$logs/profiled.json"
      note profile $?
    done
    profile details_of_adam 30 --section SpeedOfLight --section Occupancy --section MemoryWorkloadAnalysis \
      --section WarpStateStats --section LaunchStats --kernel-name regex:step_kernel --launch-skip 2 --launch-count 1 \
      "$program" --job adam --steps 2 --json "$logs/profiled.json"
    note profile $?
    # At least one whole step (540 launches in fp16), after the first steps.
    for precision in fp16 bf16; do
      profile "kernels_of_resnet50_$precision" 45 "${durations[@]}" --launch-skip 2000 --launch-count 1300 \
        "$program" --job resnet50 --precision "$precision" --steps 2 --json "$logs/profiled.json"
      note profile $?
    done
    "$python" tools/gpu/kernel_times.py "$logs"/kernels_of_*.log | tee -a "$OUT/summary.txt"
    grep -E 'Duration|Throughput|Occupancy|Registers' "$logs/details_of_adam.log" | tee -a "$OUT/summary.txt"
    save_logs
  fi
fi

# ---- compute-sanitizer over Tern's own kernels ----

if is_wanted sanitize; then
  sanitizer=$(PATH=$PATH:/usr/local/cuda/bin:$site/nvidia/cu13/bin command -v compute-sanitizer || true)
  if [ -z "$sanitizer" ]; then
    say "sanitize: there is no compute-sanitizer on this machine"
    note sanitize "no compute-sanitizer"
  elif [ "$device" = cpu ]; then
    step sanitizer_version 20 "$sanitizer" --version
    note sanitize $?
  else
    tools_left=3
    for tool in memcheck racecheck initcheck; do
      time=$((($(seconds_left) - for_converge) / tools_left))
      tools_left=$((tools_left - 1))
      step "$tool" "$((time < 60 ? time : 60))" bash tools/gpu/sanitize.sh "$sanitizer" "$tool" "$pre/tests"
      note sanitize $?
    done
    grep -hE '========= (ERROR SUMMARY|RACECHECK SUMMARY|Invalid|Uninit)' "$logs"/{mem,race,init}check.log |
      sort | uniq -c | head -12 | tee -a "$OUT/summary.txt"
  fi
fi

# ---- Convergence: measures accuracy only, so all runs are concurrent ----

if is_wanted converge; then
  if [ ! -d "${TERN_DATA:-}/mnist" ]; then
    say "converge: not packed"
    note converge "not packed"
  else
    time=$(($(seconds_left) - 5))
    step converge "$time" "$python" tests/bench/peers/gpu.py converge_mnist --device "$device" --build "$pre" \
      --limit "$time"
    note converge $?
    grep -E '^\| [^-]|^converge' "$logs/converge.log" | cut -c1-160 | tee -a "$OUT/summary.txt"
  fi
fi

exit 0 # unless a part failed: see finish
