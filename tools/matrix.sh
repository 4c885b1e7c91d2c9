# shellcheck shell=bash
# Sourced by ./dev: builds and tests Tern with the versions and compilers that
# docs/building.md promises, each in build-matrix/ROW, where ROW is
# LIBTORCH-COMPILER-OPENCV.

matrix_versions=(2.9.1 2.10.0 "$torch_version")
matrix_compilers=(gcc clang)
# These tests call most of the LibTorch API; --whole runs all tests of a row.
matrix_tests=(kernels/on_the_cpu learner/optimizers learner/loop learner/measuring
  learner/models learner/saving learner/export/onnx/export_onnx
  callbacks/precision callbacks/training callbacks/watching)
matrix_vision_tests=(vision/pictures vision/looking)

matrix_rows() {
  local version compiler
  for version in "${matrix_versions[@]}"; do
    for compiler in "${matrix_compilers[@]}"; do
      printf '%s\n' "${version%.*}-$compiler-"{core,opencv}
    done
  done
}

# run_matrix [--whole] [ROW...]: runs the rows, even after a failure, and then prints
# a table of these and all earlier rows.
run_matrix() {
  local whole="" row rows failed=0 folder=$root/build-matrix
  [ "${1:-}" != --whole ] || { whole=1 && shift; }
  mapfile -t rows < <(matrix_rows)
  expect_names row "${rows[*]}" "${rows[*]}" "$@"
  [ $# -eq 0 ] || rows=("$@")
  set_up
  for row in "${rows[@]}"; do
    say "$row"
    mkdir -p "$folder/$row"
    run_row "$row" >"$folder/$row/outcome" || failed=1
  done
  cat "$folder"/*/outcome
  return "$failed"
}

# Runs a row and prints its line of the table.
run_row() {
  local folder=$root/build-matrix/$1 version compiler opencv torch passed
  local started=$SECONDS outcome="not built" options=() targets=() filter=()
  IFS=- read -r version compiler opencv <<<"$1"
  torch=$(matrix_torch "$version")
  case $compiler in
    gcc) options+=(-DCMAKE_C_COMPILER=gcc-12 -DCMAKE_CXX_COMPILER=g++-12) ;;
    clang) options+=(-DCMAKE_C_COMPILER=clang-16 -DCMAKE_CXX_COMPILER=clang++-16
      -DCMAKE_{EXE,SHARED,MODULE}_LINKER_FLAGS=-fuse-ld=lld-16) ;;
  esac
  [ "$opencv" = opencv ] || options+=(-DTERN_VISION=OFF -DTERN_EXAMPLES=OFF)
  if [ -z "$whole" ]; then
    local tests=("${matrix_tests[@]}")
    [ "$opencv" != opencv ] || tests+=("${matrix_vision_tests[@]}")
    targets=("${tests[@]//\//_}")
    targets=(--target "${targets[@]/%/_test}")
    filter=(-R "^($(IFS='|' && echo "${tests[*]}"))\$")
  fi
  if (cd "$root" && logged "$folder/build.log" "" cmake --preset cpu -B "$folder" \
    -DTorch_DIR="$torch/share/cmake/Torch" -DTERN_PYTHON=OFF "${options[@]}") &&
    logged "$folder/build.log" "" cmake --build "$folder" \
      --parallel "$(jobs_here)" "${targets[@]}"; then
    logged "$folder/test.log" "" ctest --test-dir "$folder" --output-on-failure \
      --parallel "$(jobs_here)" -LE 'slow|random|gpu' --no-tests=error "${filter[@]}" && passed=1
    outcome=$(sed -n 's/ *\(tests passed, .*\)/ \1/p' "$folder/test.log" | tail -n 1)
  fi
  printf '%-20s %s, %d min\n' "$1" "${outcome#, }" $(((SECONDS - started) / 60))
  [ -n "${passed:-}" ]
}

# Prints the folder of LibTorch in a minor version. A version other than ./dev's gets
# only the libraries that programs link: all of CUDA's would take 3 GB more, and the
# wheel's libtorch_cpu.so needs only two of them.
matrix_torch() {
  local version wheels env
  version=$(printf '%s\n' "${matrix_versions[@]}" | grep "^$1[.]")
  env=$cache/matrix/torch-$version
  if [ "$version" = "$torch_version" ]; then
    echo "$torch_link"
    return
  fi
  wheels=("torch==$version" "nvidia-cuda-runtime-cu12==12.8.*" "nvidia-cuda-cupti-cu12==12.8.*")
  holds "$env" torch "${wheels[@]}" || alone install_matrix_torch "$env" "${wheels[@]}" >&2
  echo "$env/torch"
}

install_matrix_torch() {
  ! holds "$1" torch "${@:2}" || return 0
  say "Installing ${*:2} into $1: 0.9 GB to download, 1.8 GB on disk"
  need_space 4
  rm -rf "$1"
  mkdir -p "$1"
  pip_install "$1/pip" --only-binary=:all: --no-deps --no-compile --target "$1" "${@:2}"
  rm -rf "$1/pip"
  stamp "$1" torch "${@:2}"
}
