# shellcheck shell=bash
# Sourced by ./dev: what Tern is compiled with and run in for aarch64, as
# cmake/aarch64-linux.cmake expects it.

sysroot=$cache/arm64
arm_packages=(
  build-essential clang-16 lld-16 cmake ninja-build ccache git pkg-config
  python3-venv qemu-user debian-archive-keyring
)
# libtorch_cpu.so of the wheel names both of CUDA's libraries, and calls neither.
sysroot_wheels=("torch==$torch_version" "nvidia-cuda-runtime==13.0.*"
  "nvidia-cuda-cupti==13.0.*")

# The libraries among ./dev's packages, and those of the compiler.
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
  say "Making a Debian 12 for arm64 in $sysroot: 270 MB of packages and 430 MB" \
    "of LibTorch to download, 2.0 GB on disk. Nothing of it is installed here."
  need_space 4
  rm -rf "$sysroot"
  mkdir -p "$sysroot"
  download_packages "$sysroot/apt"
  unpack_packages "$sysroot/apt"
  # What Debian's update-alternatives would link.
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

# download_packages FOLDER: with lists and a state of its own, so that the
# machine's apt-get knows nothing of arm64.
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
      die "apt-get could not download packages of arm64; its own words are" \
        "above and in $cache/apt.log. Is there a network?"
  done
}

# unpack_packages FOLDER: as dpkg would, but what nobody compiles with.
unpack_packages() {
  local package
  for package in "$1"/cache/archives/*.deb; do
    dpkg-deb --fsys-tarfile "$package" | tar x -C "$sysroot" --no-same-owner \
      --keep-directory-symlink --exclude='./usr/share/doc/*' \
      --exclude='./usr/share/man/*' --exclude='./usr/share/locale/*' \
      --exclude='./dev/*'
  done
}

# Absolute links lead out of the sysroot.
mend_links() {
  local link target
  find "$sysroot" -lname '/*' -printf '%p\t%l\n' |
    while IFS=$'\t' read -r link target; do
      ln -sfn "$sysroot$target" "$link"
    done
}
