# shellcheck shell=bash
# Sourced by ./dev: installs what Tern is built from. Each function returns
# immediately if its work is done, and repairs interrupted work: an installation
# counts as complete only if its stamp file, which is written last, says so.

torch_version=2.11.0
packages=(
  build-essential clang-16 lld-16 cmake ninja-build ccache git python3-venv
  libopencv-dev libjpeg-dev libarchive-dev libcurl4-openssl-dev librsvg2-dev
  fonts-dejavu-core libdeflate-dev libssl-dev zlib1g-dev libcli11-dev
  nlohmann-json3-dev libpugixml-dev libgtest-dev libbenchmark-dev libgloo-dev
)
# A browser for the tests of web pages. Ubuntu has no Chromium as a Debian package.
test_packages=()
if grep -qx ID=debian /etc/os-release 2>/dev/null; then
  # shellcheck disable=SC2034 # ./dev reads it
  test_packages=(chromium)
fi
torch_wheels=("torch==$torch_version" numpy)
cuda_wheels=(
  "cuda-toolkit[nvcc,cccl,crt,nvvm,cudart,nvtx]==13.0.2"
  "nvidia-cuda-culibos==13.0.*"
)
peer_wheels=("torch==$torch_version" torchvision fastai lightning safetensors timm
  scikit-image onnxruntime==1.32.0 opencv-python-headless pycocotools)
test_wheels=("tensorboard==2.21.0" "onnxruntime==1.32.0")
site_wheels=("zensical==0.0.73")
# For the site's environment too: check notebooks and shrink their images.
notebook_wheels=("nbformat==5.11.1" "pillow==13.0.0")

# CMakePresets.json refers to these two links.
cache=$HOME/.cache/tern
torch_link=$cache/libtorch-$torch_version
cuda_link=$cache/cuda-13
torch_env=$cache/torch-$torch_version
site_env=$cache/site

progress_every=30 # seconds between progress lines if output is not a terminal

say() { printf 'dev: %s\n' "$*" >&2; }
die() {
  say "$@"
  exit 1
}

# set_up [PACKAGE...]: installs these and the packages that every command needs.
set_up() {
  announce "${packages[@]}" "$@"
  install_packages "${packages[@]}" "$@"
  use_torch numpy
  use_cuda
}

# ---- Messages during a long set-up ----

# Lists what will be installed, with the download size, disk space and time that it
# takes. Times were measured on 2 cores and a bare Debian 12.
announce() {
  local parts download disk what all=0 space=0
  update_package_lists "$@"
  parts=$(missing_parts "$@")
  [ -n "$parts" ] || return 0
  say "This will be installed:"
  while IFS=$'\t' read -r download disk what; do
    printf 'dev:   %s\ndev:     %s to download, %s on disk\n' "$what" \
      "$(size "$download")" "$(size "$disk")" >&2
    all=$((all + download)) space=$((space + disk))
  done <<<"$parts"
  say "In all $(size "$all") to download, about $((all * 8 / 6000 + 1)) min at" \
    "100 Mbit/s, and $(size "$space") on disk, about $((space / 2500 + 1)) min" \
    "to unpack. Compiling everything takes 1.2 GB more and 7 min on 2 cores."
  announced=" that are missing"
}

# missing_parts PACKAGE... : prints a line for each missing part: the MB to download,
# the MB on disk, and what it is. With `for_tests` set, includes what the tests need.
# The sizes of wheels were measured.
missing_parts() {
  local missing
  if command -v apt-get >/dev/null; then
    mapfile -t missing < <(missing_packages "$@")
    [ "${#missing[@]}" -eq 0 ] ||
      printf '%s\t%s\n' "$(apt_sizes "${missing[@]}")" \
        "Debian packages, with apt-get: ${missing[*]}"
  fi
  [ -n "${TERN_PYTHON:-}" ] || holds "$torch_env" torch "${torch_wheels[@]}" ||
    printf '2740\t4800\t%s\n' "LibTorch $torch_version, in $torch_env"
  installed_cuda >/dev/null || holds "$torch_env" cuda "${cuda_wheels[@]}" ||
    printf '105\t220\t%s\n' "CUDA 13's compiler, in $torch_env"
  [ -n "${for_tests:-}" ] || return 0
  [ -n "${TERN_PYTHON:-}" ] || holds "$torch_env" tests "${test_wheels[@]}" ||
    printf '55\t160\t%s\n' "Packages that tests compare with, in $torch_env: ${test_wheels[*]}"
  holds "$site_env" wheels "${site_wheels[@]}" ||
    printf '22\t140\t%s\n' "Packages that build the site, in $site_env: ${site_wheels[*]}"
  holds "$site_env" notebooks "${notebook_wheels[@]}" ||
    printf '9\t30\t%s\n' "Packages that check notebooks, in $site_env: ${notebook_wheels[*]}"
}

size() {
  awk -v mb="$1" 'BEGIN {
    if (mb < 1000) printf "%d MB", mb
    else printf "%.1f GB", mb / 1000
  }'
}

# logged LOG FOLDER COMMAND... : runs the command with its output in LOG. Meanwhile
# shows the elapsed time, the size of FOLDER (unless it is "") and the log's last
# line. If the command fails, prints the end of the log.
logged() {
  local log=$1 folder=$2 failed=0 ticker
  shift 2
  printf '\n%s: %s\n' "$(date '+%F %T')" "$*" >>"$log"
  show_progress "$log" "$folder" 9>&- &
  ticker=$!
  "$@" >>"$log" 2>&1 || failed=$?
  kill "$ticker" 2>/dev/null || true
  wait "$ticker" 2>/dev/null || true
  [ ! -t 2 ] || printf '\r%79s\r' '' >&2
  [ "$failed" = 0 ] || tail -n 25 "$log" >&2
  return "$failed"
}

# Updates one line on a terminal; otherwise prints a line every `progress_every` s.
show_progress() {
  local log=$1 folder=$2 started=$SECONDS every=$progress_every format='%.100s\n' words
  [ ! -t 2 ] || every=1 format='\r%-79.79s'
  # Waits with `read`, since a `sleep` would outlive this function and keep the output
  # open.
  exec 8<> <(:)
  while ! read -rt "$every" -u 8 && kill -0 $$ 2>/dev/null; do
    words=$(tail -n 1 "$log" | tr '\r\t' '  ')
    [ -z "$folder" ] ||
      words="$(size "$(du -sm "$folder" 2>/dev/null | cut -f 1)"), $words"
    # shellcheck disable=SC2059
    printf "$format" "dev:   $((SECONDS - started)) s, $words" >&2
  done
}

# alone FUNCTION ARGUMENT... : calls it while no other ./dev changes the cache.
alone() {
  mkdir -p "$cache"
  exec 9>"$cache/lock"
  flock -n 9 || {
    say "Waiting for another ./dev to finish its set-up."
    flock 9
  }
  "$@"
  exec 9>&-
}

# link TARGET LINK: changes the link atomically, and only if its target differs.
link() {
  [ "$(readlink "$2" || true)" != "$1" ] || return 0
  mkdir -p "${2%/*}"
  ln -sfn "$1" "$2.$$"
  mv -Tf "$2.$$" "$2"
}

# ---- Debian and Ubuntu packages ----

missing_packages() {
  comm -23 <(printf '%s\n' "$@" | sort) <(
    dpkg-query -W -f '${db:Status-Status} ${Package}\n' "$@" 2>/dev/null |
      sed -n 's/^installed //p' | sort -u
  )
}

# Fetches the package lists once, if one of these packages is missing.
update_package_lists() {
  [ -z "${lists_are_new:-}" ] && command -v apt-get >/dev/null &&
    [ -n "$(missing_packages "$@")" ] || return 0
  mkdir -p "$cache"
  as_root true # sudo asks for its password before anything else is shown
  say "Updating the package lists of apt-get"
  logged "$cache/apt.log" "" as_root dpkg --configure -a # of an earlier run
  logged "$cache/apt.log" "" apt_get update || die "apt-get could not fetch" \
    "its package lists; its output is above. Is there a network?"
  lists_are_new=1
}

# Prints the MB that apt-get would download for these packages, and the MB on disk
# including the archives that it keeps; 0 if it fails, since installing then says why.
apt_sizes() {
  { LC_ALL=C apt-get install --assume-no --no-install-recommends "$@" || true; } \
    2>/dev/null | tr -d , | awk '
      function mb(number, unit) {
        sub("/.*", "", unit) # "Need to get 20 kB/374 MB": the rest is already downloaded
        return number * (unit == "GB" ? 1000 : unit == "MB" ? 1 : 0.001)
      }
      /^Need to get/ { load = mb($4, $5) }
      /^After this operation/ { space = mb($4, $5) }
      END { printf "%d\t%d\n", load, load + space }'
}

install_packages() {
  local missing tool
  if ! command -v apt-get >/dev/null; then
    for tool in cmake ninja ccache g++ python3; do
      command -v "$tool" >/dev/null || die "There is no $tool, and this is" \
        "neither Debian nor Ubuntu. Install the contents of these packages: $*"
    done
    return
  fi
  mapfile -t missing < <(missing_packages "$@")
  [ "${#missing[@]}" -gt 0 ] || return 0
  update_package_lists "$@"
  say "Installing Debian packages${announced:-: ${missing[*]}}"
  logged "$cache/apt.log" "" apt_get install --yes --no-install-recommends \
    --no-remove "${missing[@]}" ||
    die "apt-get could not install the packages; its output is above and" \
      "in $cache/apt.log. ./dev never removes a package to resolve a conflict."
}

apt_get() {
  as_root apt-get -q -o DPkg::Lock::Timeout=600 -o Dpkg::Use-Pty=0 "$@"
}

as_root() {
  local call=(env DEBIAN_FRONTEND=noninteractive "$@")
  if [ "$(id -u)" = 0 ]; then
    "${call[@]}"
  elif command -v sudo >/dev/null; then
    sudo "${call[@]}"
  else
    die "Packages are missing, and installing them needs root or sudo." \
      "Ask an administrator for: apt-get install $(
        missing_packages "${packages[@]}" | xargs
      )"
  fi
}

# ---- Python environments ----

# A stamp, written last, lists the wheels of an environment.
holds() {
  local wheels=""
  read -r wheels 2>/dev/null <"$1/.tern-$2" || return 1
  [ "$wheels" = "${*:3}" ]
}

stamp() { printf '%s\n' "${*:3}" >"$1/.tern-$2"; }

system_python() {
  if [ -x /usr/bin/python3 ]; then
    echo /usr/bin/python3
  else
    echo python3
  fi
}

# pip_install ENV WHEEL... : re-creates ENV first, unless a stamp says that it is
# complete. pip downloads into ENV, since /tmp may be in memory.
pip_install() {
  local env=$1
  compgen -G "$env/.tern-*" >/dev/null || {
    rm -rf "$env"
    "$(system_python)" -m venv "$env"
  }
  rm -rf "$env/download"
  mkdir "$env/download"
  logged "$cache/pip.log" "$env" env TMPDIR="$env/download" "$env/bin/pip" \
    install --disable-pip-version-check --progress-bar off "${@:2}" ||
    die "pip could not install ${*:2}; its output is above and in" \
      "$cache/pip.log. If the network failed, run the same command again."
  rm -rf "$env/download"
}

need_space() {
  local free
  free=$(df -P --block-size=1G "$cache" | awk 'NR == 2 { print $4 }')
  [ "$free" -ge "$1" ] || die "$cache has $free GB free and set-up needs $1." \
    "Free some space, or make $cache a link to a larger disk."
}

# ---- LibTorch ----

# torch_of PYTHON [MODULE...]: prints the folder of its torch if that has our version
# and Python can also import the modules.
torch_of() {
  "$1" - "$torch_version" "${@:2}" 2>/dev/null <<'PYTHON'
import importlib, os, sys
import torch
assert torch.__version__.split("+")[0] == sys.argv[1]
for module in sys.argv[2:]:
    importlib.import_module(module)
print(os.path.dirname(torch.__file__))
PYTHON
}

# use_torch [MODULE]: TERN_PYTHON names a Python that already has torch and MODULE.
use_torch() {
  local folder
  if [ -n "${TERN_PYTHON:-}" ]; then
    folder=$(torch_of "$TERN_PYTHON" "$@") || die "TERN_PYTHON is $TERN_PYTHON," \
      "which cannot import torch $torch_version${1:+ and $1}."
  else
    holds "$torch_env" torch "${torch_wheels[@]}" || alone install_torch
    folder=$(echo "$torch_env"/lib/python3*/site-packages/torch)
  fi
  link "$folder" "$torch_link"
}

install_torch() {
  ! holds "$torch_env" torch "${torch_wheels[@]}" || return 0
  if [ -e "$torch_env/.tern-torch" ] ||
    ! torch_of "$torch_env/bin/python" numpy >/dev/null; then
    say "Installing LibTorch $torch_version into $torch_env"
    need_space 12
    pip_install "$torch_env" "${torch_wheels[@]}"
    torch_of "$torch_env/bin/python" numpy >/dev/null || die "torch is installed" \
      "but cannot be imported; try: $torch_env/bin/python -c 'import torch'"
  fi
  stamp "$torch_env" torch "${torch_wheels[@]}"
}

# ---- Tools of single commands ----

# Versions of clang-format disagree, so this is the version of the compiler.
clang_format() {
  local version=16.0.6 env=$cache/clang-format-16.0.6 formatter
  for formatter in clang-format-16 clang-format; do
    if "$formatter" --version 2>/dev/null | grep -F "$version" >/dev/null; then
      echo "$formatter"
      return
    fi
  done
  holds "$env" wheels "$version" || alone install_clang_format >&2
  echo "$env/bin/clang-format"
}

install_clang_format() {
  say "Installing clang-format $version into $env"
  install_packages python3-venv
  pip_install "$env" "clang-format==$version"
  stamp "$env" wheels "$version"
}

# Installs the wheels with which the tests read Tern's files.
install_test_tools() {
  [ -n "${TERN_PYTHON:-}" ] ||
    use_wheels "$torch_env" tests 1 "${test_wheels[@]}"
}

# Installs what builds the site.
install_site_tools() {
  install_packages python3-venv doxygen
  use_wheels "$site_env" wheels 1 "${site_wheels[@]}"
  use_wheels "$site_env" notebooks 1 "${notebook_wheels[@]}"
}

install_peers() { use_wheels "$cache/peers" wheels 12 "${peer_wheels[@]}"; }

# use_wheels ENV STAMP GIGABYTES WHEEL... : installs the wheels in ENV unless its stamp
# lists them; needs GIGABYTES of free space.
use_wheels() { holds "$1" "$2" "${@:4}" || alone install_wheels "$@"; }

install_wheels() {
  ! holds "$1" "$2" "${@:4}" || return 0
  say "Installing ${*:4} into $1"
  need_space "$3"
  pip_install "$1" "${@:4}"
  stamp "$1" "$2" "${@:4}"
}

# Describes the machine without installing anything.
describe_machine() {
  local tool
  # shellcheck disable=SC1091
  (. /etc/os-release && echo "system      $PRETTY_NAME, $(uname -rm)")
  awk '/^MemTotal/ { printf "memory      %.0f GB\n", $2 / 1048576 }' \
    /proc/meminfo
  for tool in cmake ninja g++ clang++-16 ccache python3; do
    printf '%-11s %s\n' "$tool" "$(
      ("$tool" --version 2>/dev/null || echo not installed) | head -n 1
    )"
  done
}

# Lists what is missing, incomplete or damaged. Exits with 1 if there is anything,
# since the program of ./dev doctor cannot be compiled then.
check_set_up() {
  local problems
  problems=$(set_up_problems)
  [ -n "$problems" ] || return 0
  printf '\n'
  printf 'problem: %s\n' "${problems//$'\n'/$'\nproblem: '}"
  exit 1
}

# Prints one problem per line, each with its remedy.
set_up_problems() {
  local missing tried='' damaged
  if command -v apt-get >/dev/null; then
    mapfile -t missing < <(missing_packages "${packages[@]}")
    [ "${#missing[@]}" -eq 0 ] || echo "These packages are not installed:" \
      "${missing[*]}. ./dev build installs them$(last_error "$cache/apt.log")."
    [ -z "$(dpkg --audit)" ] || echo "Some packages are only partly installed:" \
      "dpkg --audit lists them, dpkg --configure -a (as root) completes them."
  fi
  if [ -n "${TERN_PYTHON:-}" ]; then
    torch_of "$TERN_PYTHON" numpy >/dev/null || echo "TERN_PYTHON is $TERN_PYTHON," \
      "which cannot import torch $torch_version and numpy."
  elif ! holds "$torch_env" torch "${torch_wheels[@]}"; then
    [ ! -e "$torch_env" ] || tried=1
    echo "LibTorch $torch_version is not installed${tried:+ completely}:" \
      "$torch_env is ${tried:+left over from a failed attempt}$(
        [ -n "$tried" ] || echo missing
      ). ./dev build installs it$(last_error "$cache/pip.log")."
  else
    damaged=$(damaged_files "$torch_env")
    torch_of "$torch_env/bin/python" numpy >/dev/null || damaged+=" import torch fails"
    [ -z "$damaged" ] || echo "LibTorch in $torch_env is damaged" \
      "(${damaged//$'\n'/, }): rm -rf $torch_env, then ./dev build."
  fi
  installed_cuda >/dev/null || holds "$torch_env" cuda "${cuda_wheels[@]}" ||
    echo "CUDA 13's compiler is not installed, and no toolkit 13 is found." \
      "./dev build installs it$(last_error "$cache/pip.log")."
}

# Prints why the newest attempt in a log failed, as the end of a sentence; nothing if
# it succeeded.
last_error() {
  local error
  error=$(tac "$1" 2>/dev/null | sed '/^$/q' |
    grep -E -m 1 '^(E|ERROR|error): ?' || true)
  [ -z "$error" ] || echo "; the last attempt ended with \"$error\", see $1"
}

# Prints the first files that are missing or differ in size from their wheel's record.
damaged_files() {
  "$1/bin/python" - 2>/dev/null <<'PYTHON' || echo "$1/bin/python does not run"
from importlib.metadata import distributions
bad = []
for wheel in distributions():
    for file in wheel.files or ():
        path = file.locate()
        if file.size and not (path.is_file() and path.stat().st_size == file.size):
            bad.append(str(path))
print("\n".join(sorted(bad)[:3]))
PYTHON
}

# ---- The CUDA toolkit: needed to configure even without a GPU ----

# Prints the first complete CUDA toolkit 13 among the usual places.
installed_cuda() {
  local nvcc root
  nvcc=$(readlink -f "$(command -v nvcc || true)" || true)
  for root in "${CUDAToolkit_ROOT:-}" "${CUDA_HOME:-}" "${CUDA_PATH:-}" \
    "${nvcc%/bin/nvcc}" /usr/local/cuda /usr/local/cuda-13*; do
    [ -x "$root/bin/nvcc" ] && [ -e "$root/include/cuda_runtime.h" ] &&
      [ -e "$root/lib64/libcudart.so" ] &&
      "$root/bin/nvcc" --version | grep 'release 13\.' >/dev/null &&
      echo "$root" && return
  done
  return 1
}

use_cuda() {
  local root
  if ! root=$(installed_cuda); then
    holds "$torch_env" cuda "${cuda_wheels[@]}" || alone install_cuda
    root=$(echo "$torch_env"/lib/python3*/site-packages/nvidia/cu13)
  fi
  link "$root" "$cuda_link"
}

install_cuda() {
  [ -d "$torch_env" ] || die "No CUDA toolkit 13 is found. Install one, or" \
    "set CUDA_HOME to its folder; compiling needs it, but no GPU."
  ! holds "$torch_env" cuda "${cuda_wheels[@]}" || return 0
  say "Installing the CUDA compiler into $torch_env (no toolkit 13 is found)"
  local begun=$torch_env/.cuda-begun again=()
  [ ! -e "$begun" ] || again=(--force-reinstall)
  touch "$begun"
  pip_install "$torch_env" "${again[@]}" "${cuda_wheels[@]}"
  complete_cuda_wheels "$torch_env"/lib/python3*/site-packages/nvidia/cu13
  stamp "$torch_env" cuda "${cuda_wheels[@]}"
  rm "$begun"
}

# Adds the library names that a linker looks for, which the wheels leave out.
complete_cuda_wheels() {
  local library
  ln -sfn lib "$1/lib64"
  for library in "$1"/lib/lib*.so.*; do
    ln -sf "${library##*/}" "${library%%.so.*}.so"
  done
}
