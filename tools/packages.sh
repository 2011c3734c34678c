# shellcheck shell=bash disable=SC2034
# Debian packages that the scripts need; sourced by quickstart.sh and check.sh.

packages_build="g++ cmake ninja-build python3 libibverbs-dev librdmacm-dev ibverbs-providers libgtest-dev
  libcmocka-dev libcli11-dev nlohmann-json3-dev libfmt-dev zlib1g-dev
  libnl-3-dev libsodium-dev libhiredis-dev libssl-dev"
packages_run="ibverbs-utils perftest python3-matplotlib"
packages_check="clang-format clang-tidy python3-pyverbs rdma-core spin tshark tcpdump iproute2 ucx-utils libgloo-dev
  mandoc redis-server openssl"
packages_programs="$packages_check openmpi-bin libopenmpi-dev python3-torch"
packages_vm_smoke="qemu-system-x86 busybox-static iproute2 rdmacm-utils"
packages_vm="$packages_vm_smoke ibverbs-utils ibverbs-providers perftest
  libfabric-bin fio python3-pyverbs rdma-core ucx-utils libgloo-dev python3-torch"
packages_mutate="python3-clang"
packages_arm64="g++-aarch64-linux-gnu"
# Not installed: tools/arm64.sh unpacks these packages of the architecture arm64.
packages_arm64_root="libc6 libgcc-s1 libstdc++6 libibverbs1 libibverbs-dev ibverbs-providers ibverbs-utils librdmacm1
  librdmacm-dev libnl-3-200 libnl-route-3-200 libnl-3-dev libnl-route-3-dev zlib1g zlib1g-dev libfmt9 libfmt-dev
  libgtest-dev libcmocka0 libcmocka-dev libcli11-dev nlohmann-json3-dev libsodium-dev libhiredis-dev
  libssl3 libssl-dev"
packages_deb="dpkg-dev debhelper fakeroot lintian"
packages_rpm="rpm rpmlint"
packages_roots="debootstrap iproute2"
packages_fuzz="clang libclang-rt-14-dev"

package_installed() {
  dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null | grep -qx installed
}

# packages_update LOG: updates the package lists. It waits up to five minutes while another apt (a fresh
# machine's daily run) holds their lock, which DPkg::Lock::Timeout does not cover.
packages_update() {
  local try
  for ((try = 0; try < 30; try++)); do
    LC_ALL=C apt-get -qq update >"$1" 2>&1 && return 0
    grep -q 'Could not get lock' "$1" || return 1
    sleep 10
  done
  return 1
}

# packages_install NAME...: installs the packages that are missing, and says so.
packages_install() {
  local name missing=()
  for name in "$@"; do
    package_installed "$name" || missing+=("$name")
  done
  [ ${#missing[@]} -eq 0 ] && return 0
  if ! command -v apt-get >/dev/null; then
    echo "Not Debian? These packages, or what they hold, are needed: ${missing[*]}" >&2
    return 1
  fi
  if [ "$(id -u)" -ne 0 ]; then
    echo "Missing packages. Run as root: apt-get install --no-install-recommends ${missing[*]}" >&2
    return 1
  fi
  local note=""
  if [[ " ${missing[*]} " = *" busybox-static "* ]] && package_installed busybox; then
    note=" (busybox-static takes the place of busybox)"
  fi
  echo "Installing ${missing[*]}$note"
  export DEBIAN_FRONTEND=noninteractive
  local log
  log=$(mktemp)
  if ! packages_update "$log" || ! apt-get -qq -o DPkg::Lock::Timeout=300 install -y \
      --no-install-recommends "${missing[@]}" >>"$log" 2>&1; then
    tail -20 "$log" >&2
    echo "apt-get failed; the whole log: $log" >&2
    return 1
  fi
  rm -f "$log"
}

# build_preset NAME DIRECTORY [TARGET...]: configures, with what `build_options` adds, and builds; without TARGET it
# builds all.
build_preset() {
  local preset="$1" directory="$2" log="$2/build.log"
  shift 2
  mkdir -p "$directory"
  # shellcheck disable=SC2086
  if ! cmake --preset "$preset" ${build_options:-} >"$log" 2>&1; then
    cat "$log" >&2
    return 1
  fi
  if [ -t 1 ]; then
    cmake --build "$directory" ${1:+--target "$@"} # ninja shows its progress
    return
  fi
  # Not a terminal: print one line every half a minute, and the end of the log when something fails.
  cmake --build "$directory" ${1:+--target "$@"} >>"$log" 2>&1 &
  local build=$! seconds=0
  while kill -0 $build 2>/dev/null; do
    sleep 1
    seconds=$((seconds + 1))
    # The log may have no such line yet; grep's status must not end a script that runs under set -e.
    [ $((seconds % 30)) -ne 0 ] || { grep -oE '^\[[0-9]+/[0-9]+\]' "$log" || true; } | tail -1
  done
  wait $build && { tail -1 "$log"; return 0; }
  grep -vE '^\[[0-9]+/[0-9]+\]' "$log" | tail -60 >&2
  return 1
}
