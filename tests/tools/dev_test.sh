#!/usr/bin/env bash
# Tests ./dev and tools/setup.sh without a network and without installing anything: HOME is an empty
# folder; apt-get and similar tools are stubs.
# shellcheck disable=SC2016 # the argument of with_setup is expanded in its shell
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

# expect NAME TEXT WORDS... : TEXT contains all the words.
expect() {
  local name=$1 text=$2 words
  shift 2
  for words; do
    [[ $text == *"$words"* ]] && continue
    printf 'FAILED %s: "%s" is missing in:\n%s\n' "$name" "$words" "$text"
    failures=$((failures + 1))
  done
}

expect_none() {
  [[ $2 != *"$3"* ]] && return
  printf 'FAILED %s: "%s" is in:\n%s\n' "$1" "$3" "$2"
  failures=$((failures + 1))
}

# stub NAME SCRIPT : a command with this name that shadows the machine's.
stub() {
  printf '#!/bin/bash\n%s\n' "$2" >"$work/bin/$1"
  chmod +x "$work/bin/$1"
}

# A machine without any tools, on which nothing can be installed.
fresh_machine() {
  rm -rf "${work:?}"/{home,bin}
  mkdir -p "$work/home" "$work/bin"
  stub dpkg 'exit 0'
  stub dpkg-query 'exit 1'
  stub nvcc 'exit 1'
  stub sudo 'exec "$@"'
  stub apt-get 'echo "apt-get was called: $*" >&2; exit 1'
}

# The exit code is the last line.
on_machine() {
  env -u TERN_PYTHON -u CUDA_HOME -u CUDA_PATH -u CUDAToolkit_ROOT -u TERN_CPU_ISA \
    HOME="$work/home" PATH="$work/bin:$PATH" "$@" 2>&1 && echo "exit 0" ||
    echo "exit $?"
}

# Runs functions of setup.sh in a shell like ./dev's.
with_setup() {
  on_machine bash -c "set -euo pipefail; source '$root/tools/setup.sh'; $1"
}

fresh_machine
text=$(on_machine "$root/dev" matrix 2.8-gcc-core)
expect "an unknown row of the matrix" "$text" "no row '2.8-gcc-core'; there are: 2.9-gcc-core" \
  "2.11-clang-opencv" "exit 1"
text=$(on_machine "$root/dev" examples mnist typo)
expect "an unknown example" "$text" "no example 'typo'; there are:" \
  " checkpoints " " effective/modules " "exit 1"
expect_none "an unknown example" "$text" find_digits  # used by the examples
text=$(on_machine "$root/dev" notebooks typo)
expect "an unknown notebook" "$text" "no notebook 'typo'; there are:" " amp_by_hand " "exit 1"
text=$(on_machine "$root/dev" bench typo)
expect "an unknown benchmark" "$text" "no benchmark 'typo'" " kernels " "exit 1"
text=$(on_machine "$root/dev" fuzz)
expect "no parser" "$text" "no parser ''" " safetensors " "exit 1"
[ ! -e "$work/home/.cache" ] || expect "unknown names" "$(ls -R "$work/home")" \
  "an empty folder, for nothing is installed for an unknown name"

text=$(on_machine "$root/dev" doctor)
expect "doctor on a bare machine" "$text" "problem: These packages are not" \
  "problem: LibTorch 2.11.0 is not installed:" "exit 1"
expect_none "doctor on a bare machine" "$text" "apt-get was called"
expect_none "doctor on a bare machine" "$text" "No problem found"

# The state after an interrupted download.
fresh_machine
mkdir -p "$work/home/.cache/tern/torch-2.11.0/bin"
printf '%s\n' "" "first attempt" "ERROR: an old one" "" "second attempt" \
  "Collecting torch" "ERROR: no route" >"$work/home/.cache/tern/pip.log"
text=$(on_machine "$root/dev" doctor)
expect "doctor after a failed download" "$text" "is not installed completely" \
  "ended with \"ERROR: no route\"" "exit 1"
printf '%s\n' "" "third attempt" >>"$work/home/.cache/tern/pip.log"
expect_none "an error of an earlier attempt" \
  "$(on_machine "$root/dev" doctor)" "ended with"

# A file of a wheel that was truncated after its installation.
fresh_machine
env=$work/home/.cache/tern/torch-2.11.0
python3 -m venv --without-pip "$env"
site=$(echo "$env"/lib/python3*/site-packages)
mkdir "$site/torch-2.11.0.dist-info"
printf 'Metadata-Version: 2.1\nName: torch\nVersion: 2.11.0\n' \
  >"$site/torch-2.11.0.dist-info/METADATA"
printf '%s\n' "libtorch.so,sha256=x,6" "whole.so,sha256=x,5" \
  "torch-2.11.0.dist-info/RECORD,," >"$site/torch-2.11.0.dist-info/RECORD"
printf whole >"$site/whole.so"
printf who >"$site/libtorch.so"
text=$(with_setup 'damaged_files "$torch_env"')
expect "a short file" "$text" "$site/libtorch.so" "exit 0"
expect_none "a whole file" "$text" "whole.so"
text=$(with_setup 'stamp "$torch_env" torch "${torch_wheels[@]}"
  set_up_problems')
expect "doctor on a damaged file" "$text" "is damaged ($site/libtorch.so" \
  "rm -rf $env"

# ./dev announces everything before it installs anything.
fresh_machine
stub apt-get '
  case "$*" in
    *--assume-no*) echo "Need to get 374 MB/1,374 MB of archives."
      echo "After this operation, 1,600 MB of additional disk space will be used."
      exit 1 ;;
    *update) exit 0 ;;
    *) echo "debconf: delaying package configuration" >&2
      echo "Created symlink /etc/x" >&2; echo "E: No space" ; exit 100 ;;
  esac'
text=$(with_setup 'installed_cuda() { return 1; }; set_up')
expect "what is announced" "$text" "374 MB to download, 2.0 GB on disk" \
  "LibTorch 2.11.0, in $env" "In all 3.2 GB to download" "7.0 GB on disk" \
  "E: No space" "apt-get could not install the packages" "exit 1"
expect_none "what is announced without tests" "$text" zensical tensorboard
text=${text##*In all}
expect "the order" "$text" "Installing Debian packages that are missing"
expect "doctor after apt-get failed" "$(on_machine "$root/dev" doctor)" \
  "ended with \"E: No space\""
expect "what is announced for tests" \
  "$(with_setup 'for_tests=1 announce doxygen')" "Debian packages, with apt-get: doxygen" \
  "tensorboard==2.21.0" "zensical==0.0.73"

# The sysroot of ./dev arm: the download is announced first, and an incomplete sysroot is rebuilt.
mkdir -p "$work/home/.cache/tern/arm64/usr"
text=$(with_setup "source '$root/tools/sysroot.sh'; use_sysroot")
expect "a sysroot without a network" "$text" "430 MB of LibTorch to download" \
  "E: No space" "apt-get could not download packages of arm64" "exit 1"
[ ! -e "$work/home/.cache/tern/arm64/usr" ] ||
  expect "a sysroot that was cut short" "its files" "nothing"

# The output of other programs goes only to the log if they succeed.
stub apt-get 'echo "debconf: delaying package configuration" >&2'
text=$(with_setup 'install_packages clang-16')
expect_none "quiet packages" "$text" debconf
expect "quiet packages" "$text" "Installing Debian packages: clang-16" "exit 0"
expect "apt's log" "$(cat "$work/home/.cache/tern/apt.log")" "debconf: delaying"

# Slow steps report their progress.
text=$(with_setup 'progress_every=1
  logged "$HOME/log" "$HOME" \
  bash -c "echo fetching torch; sleep 2.5"')
expect "progress" "$text" " s, " " MB, fetching torch" "exit 0"
text=$(with_setup 'logged "$HOME/log" "" bash -c "echo no route; exit 7"')
expect "a failure's words and code" "$text" "no route" "exit 7"

# Tests look for the tools that ./dev installs when they run, since the build folder may have been
# configured earlier.
found=$(grep -rnF --include=CMakeLists.txt --include='*.cmake' '.cache/tern' \
  "$root/tests" "$root/examples" || true)
[ -z "$found" ] || expect "tools looked for by CMake" "$found" "nothing"
fresh_machine
peers() { on_machine python3 "$root/tests/support/peers.py" "$@"; }
expect "no tools of peers" "$(peers json "$root/tests/house.py")" \
  "SKIPPED: there is no $work/home/.cache/tern/peers/bin/python" "exit 77"
python3 -m venv --without-pip "$work/home/.cache/tern/peers"
printf 'import sys; print(sys.executable, *sys.argv[1:])\n' >"$work/script.py"
expect "a script of peers" "$(peers json "$work/script.py" one two)" \
  "$work/home/.cache/tern/peers/bin/python one two" "exit 0"
expect "a program of peers" "$(peers json /bin/echo one)" "one" "exit 0"
expect "a module that is missing" "$(peers no_such_module /bin/echo)" \
  "has no no_such_module" "exit 77"
mkdir "$work/pages"
site() { on_machine python3 "$root/tests/site.py" "$root" "$work/pages" "$work/site"; }
expect "no tools of the site" "$(site)" "SKIPPED: there is no" "exit 77"
mkdir -p "$work/home/.cache/tern/site/bin"
printf '#!/bin/bash\necho "builds $3"; exit 1\n' \
  >"$work/home/.cache/tern/site/bin/python"
chmod +x "$work/home/.cache/tern/site/bin/python"
expect "the tools of the site" "$(site)" "builds $work/pages" "exit 1"
mkdir "$work/empty"
python=$(python3 -c 'import sys; print(sys.executable)')
expect "no doxygen" "$(PATH=$work/empty "$python" \
  "$root/tools/site/build.py" "$root" "$work/pages" "$work/site" 2>&1)" \
  "There is no doxygen"

# No background process keeps a pipe open.
started=$SECONDS
text=$(with_setup 'progress_every=3600
  logged "$HOME/log" "" bash -c "sleep 0.3"')
expect "the end of progress" "$((SECONDS - started < 600)) $text" "1 exit 0"

# Waiting OpenMP threads spin less than by default, unless the user sets it.
spinning() {
  with_setup "source <(sed -n '/^let_cores_go()/,/^}/p' '$root/dev')
    $1 let_cores_go; echo \"spins \${GOMP_SPINCOUNT:-by default}\""
}
expect "spinning" "$(spinning 'unset OMP_WAIT_POLICY GOMP_SPINCOUNT;')" \
  "spins 3000"
expect "a spin count given" "$(spinning 'unset OMP_WAIT_POLICY; GOMP_SPINCOUNT=7;')" \
  "spins 7"
expect "a policy given" \
  "$(spinning 'unset GOMP_SPINCOUNT; OMP_WAIT_POLICY=active;')" "spins by default"

# The settings of ./dev test --isa: which of them hide instructions on which processor.
hides() {
  with_setup "source '$root/tools/isa.sh'; for name in \"\${isa_names[@]}\"; do
    ! isa_hides \$name 'flags : fpu $1' || printf '%s ' \$name; done"
}
expect "instructions of a Haswell" "$(hides 'avx2 f16c')" "native baseline exit 0"
expect "instructions of a Skylake" "$(hides 'avx2 avx512f')" "native onednn-avx2 baseline avx2 exit 0"
expect "instructions of a Sapphire Rapids" "$(hides 'avx2 avx512f avx512_bf16 amx_bf16')" \
  "native onednn-avx2 onednn-avx512 baseline avx2 exit 0"
text=$(with_setup "source '$root/tools/isa.sh'
  expect_names() { :; }
  processor_flags() { echo 'flags : fpu avx2'; }
  run_tests() { echo \"ran \$* with \${TERN_CPU_ISA:-none}\"; [ -z \"\${TERN_CPU_ISA:-}\" ]; }
  run_isa release all -R x")
expect "all settings" "$text" "ran release -R x with none" "ran release -R x with baseline" \
  "native         no variable: passed" "avx2           ATEN_CPU_CAPABILITY=avx2" "not run" \
  "baseline       ATEN_CPU_CAPABILITY=default TERN_CPU_ISA=baseline: FAILED" "exit 1"

# The summary that ./dev test prints at the end.
cat >"$work/tests.xml" <<'XML'
<testsuite><testcase name="quick" time="0.5"><system-out>[ RUN      ] A.B
/a/b_test.cpp:7: Skipped
TERN_DATA is not set, so there is no real data

[  SKIPPED ] A.B (0 ms)
[       OK ] A.C (3 ms)
</system-out></testcase>
<testcase name="slow" time="31.25"><system-out>done</system-out></testcase>
<testcase name="example" time="1"><skipped/><system-out>SKIPPED: TERN_DATA is not set, so there is no ${ARCHIVE}
</system-out></testcase></testsuite>
XML
text=$(python3 "$root/tools/test_summary.py" "$work/tests.xml")
expect "the summary" "$text" "31.2 s  slow" "Skipped: 2" \
  "1    TERN_DATA is not set, so there is no real data" "so there is no \${ARCHIVE}"
[[ ${text%quick*} == *slow* ]] || expect "the order of the summary" "$text" "slow before quick"

# Under CI, missing real data is an error unless it is declared optional.
example() {
  env -u TERN_DATA -u TERN_DATA_OPTIONAL "$@" cmake -DARCHIVE=a.tar -P "$root/examples/run_example.cmake" 2>&1 &&
    echo "exit 0" || echo "exit $?"
}
expect "an example without its data under CI" "$(example CI=true)" "TERN_DATA_OPTIONAL=1" "exit 1"
expect "optional data" "$(example CI=true TERN_DATA_OPTIONAL=1)" "SKIPPED: TERN_DATA is not set" "exit 0"
expect "no data elsewhere" "$(example -u CI)" "SKIPPED: TERN_DATA is not set" "exit 0"

# ./dev gpu pack reports missing data before anything is installed.
fresh_machine
text=$(TERN_DATA=$work/empty on_machine "$root/dev" gpu pack)
expect "no digits to pack" "$text" "There is no folder mnist in '$work/empty'" "exit 1"
expect_none "no digits to pack" "$text" "apt-get was called"
mkdir -p "$work/tree/.gpu"
cp -r "$root/dev" "$root/tools" "$work/tree/"
expect "nothing packed" "$(on_machine "$work/tree/dev" gpu there 10)" "Nothing is packed" "./dev gpu pack" "exit 1"
cp "$root/tools/gpu/there.sh" "$work/tree/.gpu/"
expect "an unknown part" "$(on_machine "$work/tree/dev" gpu there 10 typo)" \
  "There is no part 'typo'; there are: facts build tests combos variants" "exit 2"
expect "seconds that are no number" "$(on_machine "$work/tree/dev" gpu there tests)" "SECONDS is 'tests'" "exit 2"

[ "$failures" = 0 ] || { echo "$failures failed"; exit 1; }
echo "All passed"
