#!/usr/bin/env bash
# deb.sh BUILD TORCH BARE: packs BUILD, installs the Debian package on a bare Debian 12 without the
# sources, and builds and runs the external project there against LibTorch's wheel, TORCH. The
# wheels it depends on must be in the same folder. BARE is the folder of the bare system;
# debootstrap creates it if it is missing. Exits with 77 where this cannot be tested.
set -euo pipefail
build=$1 torch=$(realpath "$2") bare=$(realpath -m "$3")
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

skip() {
  echo "SKIPPED: $*"
  exit 77
}
[ "$(id -u)" = 0 ] || skip "chroot needs root"
command -v debootstrap >/dev/null || skip "debootstrap is not installed"
grep -qx VERSION_CODENAME=bookworm /etc/os-release ||
  skip "the package is for Debian 12, which this is not"

mirror=$({
  sed -nE 's/^(URIs: *|deb (\[[^]]*\] )?)(https?:[^ ]+).*/\3/p' \
    /etc/apt/sources.list /etc/apt/sources.list.d/debian.sources 2>/dev/null || true
} | head -n 1)
if [ ! -e "$bare/.complete" ]; then
  rm -rf "$bare"
  debootstrap --variant=minbase --include=ca-certificates bookworm "$bare" "$mirror"
  # This machine's network settings.
  cp /etc/resolv.conf /etc/hosts "$bare/etc/"
  cp /etc/apt/apt.conf.d/[89]* "$bare/etc/apt/apt.conf.d/" 2>/dev/null || true
  [ ! -e /etc/apt/sources.list.d/debian.sources ] ||
    cp /etc/apt/sources.list.d/debian.sources "$bare/etc/apt/sources.list.d/"
  cp -r /usr/share/keyrings/. "$bare/usr/share/keyrings/"
  cp /etc/ssl/certs/ca-certificates.crt "$bare/etc/ssl/certs/"
  touch "$bare/.complete"
fi

rm -rf "$bare/root/tern" "$build/tests/deb"
mkdir -p "$bare/root/tern" "$bare/opt/torch"
cpack --config "$build/CPackConfig.cmake" -B "$build/tests/deb"
cp "$build"/tests/deb/tern*.deb "$here/CMakeLists.txt" "$here"/*.cpp "$bare/root/tern/"

cat >"$bare/root/tern/run.sh" <<'BARE'
set -euo pipefail
cd /root/tern
apt-get -q -o Dpkg::Use-Pty=0 update
apt-get -q -o Dpkg::Use-Pty=0 install --yes --no-install-recommends ./tern*.deb g++ cmake make
! command -v nvcc
cmake -B build -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE=-DNDEBUG \
  -DCMAKE_PREFIX_PATH=/opt/torch/torch
cmake --build build
build/line
[ ! -e /usr/lib/libtern_vision.a ] || build/images
test -s /usr/share/doc/tern*/copyright
apt-get -q -o Dpkg::Use-Pty=0 remove --yes 'tern*'
test ! -e /usr/lib/libtern.a
echo "The package was installed, used and removed."
BARE

# shellcheck disable=SC2016
exec unshare --mount bash -euc '
  mount -t proc proc "$0/proc"
  mount --rbind /dev "$0/dev"
  mount --bind "$1" "$0/opt/torch"
  exec chroot "$0" env -i HOME=/root LC_ALL=C DEBIAN_FRONTEND=noninteractive \
    PATH=/usr/sbin:/usr/bin:/sbin:/bin bash /root/tern/run.sh
' "$bare" "${torch%/*}"
