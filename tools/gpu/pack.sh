# shellcheck shell=bash
# Sourced by ./dev: `./dev gpu pack` builds programs here for a few minutes on a GPU
# machine. It puts them into .gpu, which git ignores; copy .gpu to that machine along
# with the tree. The GPU machine has torch, CUDA, CMake and a compiler, but no Debian
# packages and no network. docs/gpu.md shows the two commands.

gpu_programs=(tests/kernels_on_a_gpu_test tests/data_on_a_gpu_test tests/learner_cuda_modules_test
  tests/callbacks_on_a_gpu_test tests/learner_combos_combos_test tests/bench/gpu_timed)

pack_for_gpu() {
  local pack=$root/.gpu build=$root/build-pack data stage variant
  local -a variants=()
  # Checks for missing files before anything is installed or built.
  data=${TERN_DATA:-$root/../shared/data}
  [ -d "$data/mnist" ] || die "There is no folder mnist in '$data', and the training runs that compare" \
    "precisions need its digits: set TERN_DATA to the folder that contains mnist."
  set_up
  install_packages patch xz-utils
  [ ! -d "$root/tools/gpu/variants" ] ||
    mapfile -t variants < <(find "$root/tools/gpu/variants" -name '*.diff' | sort)
  for variant in "${variants[@]}"; do
    (cd "$root" && patch --dry-run --silent -p1 <"$variant") >&2 ||
      die "$variant no longer applies to the sources. Update it, or remove it if it was measured."
  done

  configure pack
  build pack gpu learner_combos_combos_test
  stage=$(mktemp -d)
  # shellcheck disable=SC2064 # the folder's name is known now
  trap "rm -rf '$stage'" EXIT
  strip_programs "$build" "$stage/pre" "${gpu_programs[@]}"
  bash "$root/tools/gpu/list_tests.sh" "$build" >"$stage/pre/tests.txt"
  [ -s "$stage/pre/tests.txt" ] || die "CTest lists no test with the label gpu."
  grep -E '^CMAKE_CXX_COMPILER:' "$build/CMakeCache.txt" >"$stage/pre/CMakeCache.txt" # for the page with the rows
  mkdir -p "$stage/pre/variants"
  for variant in "${variants[@]}"; do
    build_variant "$variant" "$build/variants/$(basename "$variant" .diff)"
    strip_programs "$build/variants/$(basename "$variant" .diff)/build-pack" \
      "$stage/pre/variants/$(basename "$variant" .diff)" tests/kernels_on_a_gpu_test tests/bench/gpu_timed
  done
  pack_libraries "$stage/sys"

  rm -rf "$pack"
  mkdir -p "$pack/data"
  tar -C "$stage" -cf - pre | xz -T0 -3 >"$pack/pre.tar.xz"
  tar -C "$stage" -cf - sys | xz -T0 -3 >"$pack/sys.tar.xz"
  cp -r "$data/mnist" "$pack/data/"
  commit_of_tree >"$pack/commit.txt"
  cp "$root/tools/gpu/there.sh" "$pack/"
  say "Packed $(cat "$pack/commit.txt") into .gpu: $(wc -l <"$stage/pre/tests.txt") test files," \
    "${#variants[@]} variant(s) of the kernels, MNIST."
  say "The tree has $(tree_megabytes) MB and .gpu $(du -sm "$pack" | cut -f 1) MB." \
    "There: bash .gpu/there.sh SECONDS"
}

# Builds a copy of the tree with one patch. ccache has everything except the kernels
# that the patch changes. Copied files keep their times, so that a second pack
# compiles only new code.
build_variant() {
  local diff=$1 copy=$2
  mkdir -p "$copy"
  find "$copy" -mindepth 1 -maxdepth 1 ! -name build-pack -exec rm -rf {} +
  tree_files | tar -C "$root" --null -T - -cf - | tar -C "$copy" -xf -
  patch -d "$copy" --silent -p1 <"$diff"
  # shellcheck disable=SC2030,SC2031 # the copy is the root for these two alone
  (root=$copy && configure pack && build pack kernels_on_a_gpu_test gpu_timed)
}

# Prints the files that git tracks or does not ignore, each followed by a null byte.
tree_files() {
  (cd "$root" && git ls-files -z --cached --others --exclude-standard |
    while IFS= read -r -d '' file; do [ ! -f "$file" ] || printf '%s\0' "$file"; done)
}

# strip_programs BUILD TO PROGRAM... : copies programs and modules without symbols.
strip_programs() {
  local build=$1 to=$2 file
  shift 2
  for file; do
    mkdir -p "$(dirname "$to/$file")"
    strip -o "$to/$file" "$build/$file"
  done
  for file in "$build"/libtern_*.so; do
    [ ! -e "$file" ] || strip -o "$to/${file##*/}" "$file"
  done
}

# Copies the headers and static libraries that a build on the GPU machine lacks.
pack_libraries() {
  local sys=$1 library lib=/usr/lib/x86_64-linux-gnu
  mkdir -p "$sys/include" "$sys/lib" "$sys/share/cmake"
  cp -a /usr/include/openssl "$sys/include/"
  cp -a /usr/include/x86_64-linux-gnu/openssl/. "$sys/include/openssl/"
  cp -a /usr/include/{zlib,zconf}.h /usr/include/nlohmann /usr/include/gloo "$sys/include/"
  for library in libcrypto libz; do strip -g -o "$sys/lib/$library.a" "$lib/$library.a"; done
  cp -a /usr/share/cmake/nlohmann_json "$sys/share/cmake/"
  cp -a /usr/src/googletest "$sys/googletest"
  rm -rf "$sys"/googletest/google{mock,test}/{docs,test,samples,scripts}
}

commit_of_tree() {
  printf '%s%s\n' "$(git -C "$root" rev-parse --short HEAD)" \
    "$([ -z "$(git -C "$root" status --porcelain)" ] || echo ' with changes')"
}

tree_megabytes() {
  (cd "$root" && tree_files | xargs -0 du -cb | awk '/total$/ { bytes += $1 } END { printf "%d", bytes / 1e6 }')
}
