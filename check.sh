#!/bin/bash
# Installs missing packages, builds, and runs all tests. Options: --tidy also runs clang-tidy, --quick leaves
# out the sanitizer build, --programs also runs all unmodified programs and not only a few (MPI, PyTorch and
# others, which are large to install), --arm64 also builds for aarch64 and runs what it can under QEMU,
# --packages builds Debian and RPM packages and installs them into fresh roots, and --asan-large also runs
# large unit tests with sanitizers.
set -u -o pipefail
cd "$(dirname "$0")" || exit
. tools/packages.sh

tidy=no quick=no programs=no arm64=no packages=no asan_large=OFF
for argument in "$@"; do
  case "$argument" in
    --tidy) tidy=yes ;;
    --quick) quick=yes ;;
    --programs) programs=yes ;;
    --arm64) arm64=yes ;;
    --packages) packages=yes ;;
    --asan-large) asan_large=ON ;;
    *) echo "usage: $0 [--tidy] [--quick] [--programs] [--arm64] [--packages] [--asan-large]" >&2; exit 4 ;;
  esac
done

begin=$SECONDS
summary=()
failed=0

# step NAME COMMAND...: runs the command and keeps its result for the summary. A command ends with 77 when it
# cannot run here, and says why.
step() {
  local name="$1" from=$SECONDS result=ok
  shift
  echo "== $name ($((SECONDS - begin)) s so far)"
  "$@"
  case $? in
    0) ;;
    77) result=skipped ;;
    *) result=FAILED failed=1 ;;
  esac
  summary+=("$(printf '%-22s %-7s %4d s' "$name" "$result" $((SECONDS - from)))")
  [ "$result" != FAILED ]
}

# Lists all sources except assembler, which clang-format does not know.
sources() {
  find . -path ./build -prune -o \( -name '*.cc' -o -name '*.h' -o -name '*.c' \) -print |
    grep -v /trampoline.h | sort
}

format() { sources | xargs clang-format --dry-run --Werror; }
tidy() {
  # It wants the command of each source.
  cmake --preset release -B build/tidy -DCMAKE_UNITY_BUILD=OFF >/dev/null || return
  sources | grep '\.cc$' | grep -vE '/test/|^tests/' |
    xargs -n 4 -P 2 clang-tidy --quiet -p build/tidy 2>/dev/null
}
# tests DIRECTORY ARGUMENTS...: runs the tests and prints each when it ends. Four run side by side, since most of
# them wait; cmake/ShiftTargets.cmake says which ones need quiet, and which ones give way.
tests() {
  local directory="$1"
  shift
  (cd "$directory" && ctest -j 4 --output-on-failure --timeout 1200 "$@")
}

# Runs two machines with the distribution's kernel, where QEMU can be installed. The time limit is for a machine
# that hangs.
vm_smoke() {
  # shellcheck disable=SC2086
  packages_install $packages_vm_smoke || { echo "skipped: packages are missing"; return 77; }
  timeout 600 /usr/bin/python3 tests/vm/vm.py --build build --smoke --out build/out/vm-smoke
}

# Two releases of Debian, in roots that debootstrap makes.
packages_roots() {
  # shellcheck disable=SC2086
  packages_install $packages_roots || { echo "skipped: packages are missing"; return 77; }
  /usr/bin/python3 tests/packages/roots.py --suite bookworm --suite trixie
}

# RPM packages in a root of their own, and whether that would find mistakes in them.
rpm_roots() {
  # shellcheck disable=SC2086
  packages_install $packages_roots $packages_rpm || { echo "skipped: packages are missing"; return 77; }
  /usr/bin/python3 tests/packages/rpms.py && /usr/bin/python3 tests/packages/rpms.py --selftest
}

# The sanitizer build leaves out tests that look at the shipped library's symbols, or at a program's whole
# environment and error output, since a sanitizer changes these. It also leaves out what has no C++ of the layer:
# the model and its traces, the patch series, Wireshark; and unmodified programs, whose own leaks would be
# reported. The emulator stands for the hardware there: it is compiled without sanitizers, and its tests are in
# the release build alone. So are the scenarios, most of whose code the simulation runs as well, and tests of the
# whole layer that take long and run the code that the campaigns and unit tests run.
asan_tests() {
  local left_out='(mlx5_)?front_symbols|front_programs|shift_run|cxemu_e2e_(udp_)?test|model_.*|programs.*|pyverbs.*|clients(_eight)?|starts|vm'
  left_out+='|rdma_core_suite(_planted)?|trace_.*|series_.*|wireshark.*|e2e_(born|flush|keys|last_nic|many|outage|rails|spread)'
  left_out="^($left_out)\$"
  echo "left out under sanitizers: $left_out"
  ASAN_OPTIONS=detect_leaks=0 tests build/asan -E "$left_out"
}

# The sanitizer build runs beside the release tests, which wait now and then. It has the idle scheduling class
# and a session of its own with the lowest priority.
asan_behind() {
  { echo 19 >/proc/self/autogroup; chrt --idle --pid 0 $$ || renice -n 19 $$; } &>/dev/null
  build_options="-DSHIFT_LARGE_TESTS=$asan_large" build_preset asan build/asan
}
asan_start() {
  mkdir -p build/asan
  export -f asan_behind build_preset
  export asan_large
  setsid bash -c asan_behind >build/asan/behind.log 2>&1 &
  behind=$!
  trap 'kill -- -$behind 2>/dev/null' EXIT
}
asan_end() {
  wait "$behind" || { cat build/asan/behind.log; return 1; }
  tail -1 build/asan/behind.log
}

# shellcheck disable=SC2086
step packages packages_install $packages_build $packages_run $packages_check || exit 1
if [ "$programs" = yes ]; then
  # shellcheck disable=SC2086
  step "more packages" packages_install $packages_programs
fi
step format format
if step "release build" build_preset release build; then
  [ "$quick" = yes ] || asan_start
  step "release tests" tests build
  step "vm smoke" vm_smoke
  [ "$quick" = yes ] || { step "asan build" asan_end && step "asan tests" asan_tests; }
fi
[ "$programs" = yes ] && step "all programs" /usr/bin/python3 tests/programs/programs.py \
  --build build --all --complete --out build/out/all-programs --json build/out/all-programs.json
[ "$programs" = yes ] && step "client matrix" /usr/bin/python3 tests/clients/clients.py --build build \
  --all --complete --jobs 2 --out build/out/all-clients --json build/out/all-clients.json &&
  step "starts on broken NICs" /usr/bin/python3 tests/clients/starts.py --build build --complete --jobs 2 \
    --out build/out/all-starts --json build/out/all-starts.json
[ "$packages" = yes ] && step "debian packages" tools/package deb &&
  step "package roots" packages_roots
[ "$packages" = yes ] && step "rpm packages" tools/package rpm && step "rpm roots" rpm_roots
[ "$arm64" = yes ] && step arm64 tools/arm64.sh
[ "$tidy" = yes ] && step clang-tidy tidy

echo
echo "== summary, $((SECONDS - begin)) s"
printf '%s\n' "${summary[@]}"
if [ $failed -ne 0 ]; then
  echo "check: FAILED"
  exit 1
fi
echo "check: passed"
