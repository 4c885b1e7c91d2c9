# shellcheck shell=bash
# Sourced by ./dev: installs the sysroot in which Tern is compiled and run for
# aarch64, as cmake/aarch64-linux.cmake expects it.

sysroot=$cache/arm64
arm_packages=(
  build-essential clang-16 lld-16 cmake ninja-build ccache git pkg-config
  python3-venv qemu-user debian-archive-keyring
)
# The wheel's libtorch_cpu.so links both CUDA libraries but calls neither.
sysroot_wheels=("torch==$torch_version" "nvidia-cuda-runtime==13.0.*"
  "nvidia-cuda-cupti==13.0.*")

# Prints the libraries among ./dev's packages, and those of the compiler.
sysroot_packages() {
  printf '%s\n' libc6-dev libstdc++-12-dev "${packages[@]}" |
    grep -E '(-dev|^fonts-.*)$'
}

use_sysroot() {
  local wanted
  mapfile -t wanted < <(sysroot_packages && printf '%s\n' "${sysroot_wheels[@]}")
  holds "$sysroot" arm64 "${wanted[@]}" || alone install_sysroot "${wanted[@]}"
}

install_sysroot() {
  ! holds "$sysroot" arm64 "$@" || return 0
  say "Creating a Debian 12 for arm64 in $sysroot: 270 MB of packages and 430 MB" \
    "of LibTorch to download, 2.0 GB on disk. The system itself is not changed."
  need_space 4
  rm -rf "$sysroot"
  mkdir -p "$sysroot"
  download_packages "$sysroot/apt"
  unpack_packages "$sysroot/apt"
  # The links that Debian's update-alternatives would create.
  ln -sf blas/libblas.so.3 lapack/liblapack.so.3 "$sysroot/usr/lib/aarch64-linux-gnu"
  mend_links
  local platforms=()
  mapfile -t platforms < <(printf -- '--platform\nmanylinux_2_%s_aarch64\n' 17 25 28)
  pip_install "$sysroot/pip" "${platforms[@]}" --only-binary=:all: --no-deps \
    --python-version 3.11 --no-compile \
    --target "$sysroot/usr/local/lib/torch-$torch_version" "${sysroot_wheels[@]}"
  rm -rf "$sysroot/apt" "$sysroot/pip"
  stamp "$sysroot" arm64 "$@"
}

# download_packages FOLDER: uses its own package lists and state, so that the
# machine's apt-get is not affected by arm64.
download_packages() {
  mkdir -p "$1/state/lists/partial" "$1/cache/archives/partial"
  touch "$1/state/status"
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]" \
    "http://deb.debian.org/debian bookworm main" >"$1/sources.list"
  printf '%s;\n' 'APT::Architecture "arm64"' 'APT::Architectures { "arm64"; }' \
    'APT::Install-Recommends "false"' 'APT::Sandbox::User ""' \
    "Dir::State \"$1/state\"" "Dir::State::status \"$1/state/status\"" \
    "Dir::Cache \"$1/cache\"" "Dir::Etc::sourcelist \"$1/sources.list\"" \
    'Dir::Etc::sourceparts "/dev/null"' >"$1/apt.conf"
  local wanted command
  mapfile -t wanted < <(sysroot_packages)
  for command in update "install --download-only --yes ${wanted[*]}"; do
    # shellcheck disable=SC2086
    logged "$cache/apt.log" "$1" env APT_CONFIG="$1/apt.conf" apt-get -q $command ||
      die "apt-get could not download packages of arm64; its output is" \
        "above and in $cache/apt.log. Is there a network?"
  done
}

# unpack_packages FOLDER: as dpkg would, without documentation and translations.
unpack_packages() {
  local package
  for package in "$1"/cache/archives/*.deb; do
    dpkg-deb --fsys-tarfile "$package" | tar x -C "$sysroot" --no-same-owner \
      --keep-directory-symlink --exclude='./usr/share/doc/*' \
      --exclude='./usr/share/man/*' --exclude='./usr/share/locale/*' \
      --exclude='./dev/*'
  done
}

# Makes absolute links point into the sysroot.
mend_links() {
  local link target
  find "$sysroot" -lname '/*' -printf '%p\t%l\n' |
    while IFS=$'\t' read -r link target; do
      ln -sfn "$sysroot$target" "$link"
    done
}
