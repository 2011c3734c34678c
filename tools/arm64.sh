#!/bin/bash
# Builds for aarch64 on an x86-64 machine, and runs the tests that user-mode QEMU can run: unit tests, the fronts,
# and failovers of the judge's traffic between emulated hosts. `check.sh --arm64` calls it; it also runs alone.
set -u -o pipefail
cd "$(dirname "$0")/.." || exit
# shellcheck source=packages.sh
. tools/packages.sh

# cmake/arm64.cmake knows this folder, too: the libraries of an aarch64 machine, and the emulator.
root=$PWD/build/arm64-root

# The packages are unpacked and not installed. Installing them would take `dpkg --add-architecture`, which makes
# each later update fetch the lists of arm64, too, and libraries of this machine would be raised to the versions of
# the foreign ones. So only this one call of apt, with lists of its own, knows the foreign architecture. Installing
# QEMU would register it with the kernel for all foreign programs.
download() {
  cat >"$root/apt.conf" <<END
APT::Architecture "arm64";
APT::Architectures { "arm64"; "amd64"; };
APT::Sandbox::User "root";
Dir::State::Status "/dev/null";
Dir::State::Lists "$root/lists";
Dir::Cache "$root/cache";
END
  mkdir -p "$root/lists/partial" "$root/cache/archives/partial" "$root/debs" || return
  apt-get -qq -c "$root/apt.conf" update || return
  # shellcheck disable=SC2086
  (cd "$root/debs" && apt-get -qq -c "$root/apt.conf" download $packages_arm64_root qemu-user-static:amd64)
}

unpack() {
  [ "$(cat "$root/unpacked" 2>/dev/null)" = "$packages_arm64_root" ] && return 0
  rm -rf "$root"
  mkdir -p "$root/sysroot" || return
  echo "Unpacking arm64 packages into build/arm64-root; apt knows that architecture for this download only"
  download || return
  local deb
  for deb in "$root"/debs/*; do
    case "$deb" in
      */qemu-*) dpkg-deb --fsys-tarfile "$deb" | tar -xO ./usr/bin/qemu-aarch64-static >"$root/qemu-aarch64" ;;
      *) dpkg-deb -x "$deb" "$root/sysroot" ;;
    esac || return
  done
  chmod +x "$root/qemu-aarch64" || return
  rm -rf "$root/apt.conf" "$root/lists" "$root/cache" "$root/debs"
  echo "$packages_arm64_root" >"$root/unpacked"
}

unit_tests="cxemu_fabric_test cxemu_fuzz_replay_test cxemu_uverbs_test shift_util_test shift_fsm_test
  shift_wire_test shift_net_test shift_link_watch_test shift_group_test shift_ordering_test shift_control_test
  shift_scenario_test shift_ops_test sim_repeat_test rdmacm_events_test mlx5_leads_test front_poison_test
  front_load_test front_destroy_test front_compat_test front_short_stock_test"
# What the tests below start.
programs="fronts cxemu shift-run shift-traffic shift-nccl front_emulated_test front_newer_stock_test
  front_of_newer_stock mlx5_virtual_test"
# shellcheck disable=SC2086
tests="($(echo $unit_tests | tr ' ' '|')|traffic_selftest|nccl_selftest|(mlx5_)?front_symbols|(mlx5_)?front_emulated)"

left_out() {
  cat <<END
left out under emulation:
  tests of scripts, sources, documents and the model: nothing in them is built for aarch64
  bench: instructions and times would be QEMU's
  planted bugs, simulation, fuzzers, cxemu_nic_test: they compute for minutes, and the same on each processor
  death tests, cxemu_e2e_test, shift_run, front_programs and others: their programs start programs, and QEMU does
    not follow where the kernel does not know it
  clients, programs, pyverbs, life, vm: they need unmodified programs of a whole machine, or its kernel
  weak memory orders: QEMU keeps x86-64's order, so wrong ones do not show (docs/limits.md)
END
}

run_tests() {
  # shellcheck disable=SC2086
  build_preset arm64 build/arm64 $unit_tests $programs || return
  left_out
  export SHIFT_EMULATOR="$root/qemu-aarch64 -L $root/sysroot" PATH="$root/sysroot/usr/bin:$PATH"
  export GTEST_FILTER='-*DeathTest.*' SHIFT_ORDERING_MS=5000
  (cd build/arm64 && ctest -j 3 --output-on-failure --timeout 1200 -R "^$tests\$") || return
  /usr/bin/python3 tests/e2e/campaign.py --build build/arm64 --runs 16 --jobs 2 --out build/arm64/out/e2e
}

if [ "$(uname -m)" != x86_64 ]; then
  echo "skipped: this is for x86-64 machines; on aarch64 the other tests say more"
  exit 77
fi
# shellcheck disable=SC2086
packages_install $packages_arm64 && unpack && run_tests
