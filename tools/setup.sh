# shellcheck shell=bash
# Sourced by ./dev: puts on the machine what Tern is built from. Each function
# returns at once when its work is done, and repairs work that was cut short:
# what a stamp file, written last, does not call whole is made again.

torch_version=2.11.0
packages=(
  build-essential clang-16 lld-16 cmake ninja-build ccache git python3-venv
  libopencv-dev libjpeg-dev libarchive-dev libcurl4-openssl-dev
  libdeflate-dev zlib1g-dev libcli11-dev nlohmann-json3-dev libgtest-dev libbenchmark-dev
  libgloo-dev
)
torch_wheels=("torch==$torch_version" numpy)
cuda_wheels=(
  "cuda-toolkit[nvcc,cccl,crt,nvvm,cudart,nvtx]==13.0.2"
  "nvidia-cuda-culibos==13.0.*"
)
peer_wheels=("torch==$torch_version" torchvision fastai lightning safetensors)
test_wheels=("tensorboard==2.21.0")

# CMakePresets.json knows these two links, whatever they point to.
cache=$HOME/.cache/tern
torch_link=$cache/libtorch-$torch_version
cuda_link=$cache/cuda-13
torch_env=$cache/torch-$torch_version

say() { printf 'dev: %s\n' "$*" >&2; }
die() {
  say "$@"
  exit 1
}

set_up() {
  install_packages "${packages[@]}"
  use_torch
  use_cuda
}

# alone FUNCTION ARGUMENT... : while no other ./dev changes the cache.
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

# The link's target changes in one step, and only if it has to.
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

install_packages() {
  local missing tool
  if ! command -v apt-get >/dev/null; then
    for tool in cmake ninja ccache g++ python3; do
      command -v "$tool" >/dev/null || die "There is no $tool, and this is" \
        "neither Debian nor Ubuntu. Install what these packages hold: $*"
    done
    return
  fi
  mapfile -t missing < <(missing_packages "$@")
  [ "${#missing[@]}" -gt 0 ] || return 0
  say "Installing ${missing[*]}"
  mkdir -p "$cache"
  as_root dpkg --configure -a # what an interrupted run left
  apt_get update
  apt_get install --yes --no-install-recommends --no-remove "${missing[@]}" ||
    die "apt-get could not install the packages; its own words are above and" \
      "in $cache/apt.log. ./dev never removes a package to make room."
}

apt_get() {
  as_root apt-get -qq -o DPkg::Lock::Timeout=600 -o Dpkg::Use-Pty=0 "$@"
}

as_root() {
  local call=(env DEBIAN_FRONTEND=noninteractive "$@")
  if [ "$(id -u)" = 0 ]; then
    "${call[@]}"
  elif command -v sudo >/dev/null; then
    sudo "${call[@]}"
  else
    die "Packages are missing, and here is neither root nor sudo." \
      "Ask an administrator for: apt-get install $(
        missing_packages "${packages[@]}" | xargs
      )"
  fi
} >>"$cache/apt.log"

# ---- Python environments ----

# A stamp, written last, says which wheels an environment holds.
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

# pip_install ENV WHEEL... : anew, unless a stamp says that ENV is whole.
pip_install() {
  local env=$1 quiet=-q
  [ ! -t 2 ] || quiet=
  compgen -G "$env/.tern-*" >/dev/null || {
    rm -rf "$env"
    "$(system_python)" -m venv "$env"
  }
  "$env/bin/pip" install ${quiet:+"$quiet"} --disable-pip-version-check \
    "${@:2}" >&2 || die "pip could not install ${*:2}; its own words are" \
    "above. If the network failed, run the same command again."
}

need_space() {
  local free
  free=$(df -P --block-size=1G "$cache" | awk 'NR == 2 { print $4 }')
  [ "$free" -ge "$1" ] || die "$cache has $free GB free and set-up needs $1." \
    "Free some space, or make $cache a link to a larger disk."
}

# ---- LibTorch ----

# Prints the folder of the torch that a Python has, if it is ours in version.
torch_of() {
  "$1" - "$torch_version" 2>/dev/null <<'PYTHON'
import os, sys
import numpy, torch
assert torch.__version__.split("+")[0] == sys.argv[1]
print(os.path.dirname(torch.__file__))
PYTHON
}

# TERN_PYTHON names a Python that already has torch and numpy.
use_torch() {
  local folder
  if [ -n "${TERN_PYTHON:-}" ]; then
    folder=$(torch_of "$TERN_PYTHON") || die "TERN_PYTHON is $TERN_PYTHON," \
      "which cannot import torch $torch_version and numpy."
  else
    holds "$torch_env" torch "${torch_wheels[@]}" || alone install_torch
    folder=$(echo "$torch_env"/lib/python3*/site-packages/torch)
  fi
  link "$folder" "$torch_link"
}

install_torch() {
  ! holds "$torch_env" torch "${torch_wheels[@]}" || return 0
  if [ -e "$torch_env/.tern-torch" ] ||
    ! torch_of "$torch_env/bin/python" >/dev/null; then
    say "Installing LibTorch $torch_version into $torch_env (some minutes)"
    need_space 12
    pip_install "$torch_env" "${torch_wheels[@]}"
    torch_of "$torch_env/bin/python" >/dev/null || die "torch is installed" \
      "but cannot be imported; try: $torch_env/bin/python -c 'import torch'"
  fi
  stamp "$torch_env" torch "${torch_wheels[@]}"
}

# ---- What single commands need ----

# Versions of clang-format disagree; this one is the compiler's.
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

# What the tests have read our files with: a browser (Ubuntu's is no package),
# and wheels beside torch.
install_test_tools() {
  ! grep -qx ID=debian /etc/os-release || install_packages chromium
  [ -z "${TERN_PYTHON:-}" ] || return 0
  holds "$torch_env" tests "${test_wheels[@]}" || alone install_test_wheels
}

install_test_wheels() {
  ! holds "$torch_env" tests "${test_wheels[@]}" || return 0
  say "Installing ${test_wheels[*]} into $torch_env"
  pip_install "$torch_env" "${test_wheels[@]}"
  stamp "$torch_env" tests "${test_wheels[@]}"
}

install_peers() {
  holds "$cache/peers" wheels "${peer_wheels[@]}" || alone install_peer_wheels
}

install_peer_wheels() {
  ! holds "$cache/peers" wheels "${peer_wheels[@]}" || return 0
  say "Installing ${peer_wheels[*]} into $cache/peers (some minutes)"
  need_space 12
  pip_install "$cache/peers" "${peer_wheels[@]}"
  stamp "$cache/peers" wheels "${peer_wheels[@]}"
}

# What can be said before anything is installed.
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

# ---- The CUDA toolkit: always needed to configure, a GPU never ----

# The first complete toolkit 13 among the places where one is usually found.
installed_cuda() {
  local nvcc root
  nvcc=$(readlink -f "$(command -v nvcc || true)" || true)
  for root in "${CUDAToolkit_ROOT:-}" "${CUDA_HOME:-}" "${CUDA_PATH:-}" \
    "${nvcc%/bin/nvcc}" /usr/local/cuda /usr/local/cuda-13*; do
    [ -x "$root/bin/nvcc" ] && [ -e "$root/include/cuda_runtime.h" ] &&
      [ -e "$root/lib64/libcublas.so" ] &&
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
    "name its folder in CUDA_HOME; it is needed to compile, a GPU is not."
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

# The wheels leave out the names that a linker looks for.
complete_cuda_wheels() {
  local library
  ln -sfn lib "$1/lib64"
  for library in "$1"/lib/lib*.so.*; do
    ln -sf "${library##*/}" "${library%%.so.*}.so"
  done
}
