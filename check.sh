#!/bin/bash
# Installs what is missing, builds, runs all tests. Options: --tidy also runs clang-tidy,
# --quick leaves out the sanitizer build, --programs adds all unmodified programs to the usual few:
# MPI, PyTorch and others, which are large to install.
set -u -o pipefail
cd "$(dirname "$0")" || exit
. tools/packages.sh

tidy=no quick=no programs=no
for argument in "$@"; do
  case "$argument" in
    --tidy) tidy=yes ;;
    --quick) quick=yes ;;
    --programs) programs=yes ;;
    *) echo "usage: $0 [--tidy] [--quick] [--programs]" >&2; exit 4 ;;
  esac
done

begin=$SECONDS
summary=()
failed=0

# step NAME COMMAND...: runs it, keeps its result for the summary.
step() {
  local name="$1" from=$SECONDS result=ok
  shift
  echo "== $name ($((SECONDS - begin)) s so far)"
  "$@" || { result=FAILED; failed=1; }
  summary+=("$(printf '%-22s %-6s %4d s' "$name" "$result" $((SECONDS - from)))")
  [ "$result" = ok ]
}

# All but assembler, which clang-format does not know.
sources() {
  find . -path ./build -prune -o \( -name '*.cc' -o -name '*.h' -o -name '*.c' \) -print |
    grep -v /trampoline.h | sort
}

format() { sources | xargs clang-format --dry-run --Werror; }
tidy() {
  sources | grep '\.cc$' | grep -vE '/test/|^tests/' |
    xargs -n 4 -P 2 clang-tidy --quiet -p build 2>/dev/null
}
# Two lanes. In front: what looks at a clock or mostly waits, a build or one test after the other. Behind,
# on the time that the front leaves over: the sanitizer build, and tests that only compute.
compute='^(unit|model|sim)$'

# tests DIRECTORY ARGUMENTS...: prints each test as it ends; ctest's closing lines follow. What needs the
# machine for itself says so to ctest.
tests() {
  local directory="$1"
  shift
  (cd "$directory" && ctest -j 2 --output-on-failure --timeout 1200 "$@")
}

# Left out under sanitizers: what looks at the shipped library's symbols, at a program's whole
# environment and error output, or at costs; a sanitizer changes those. The model has nothing of ours to
# instrument. Strangers' programs leak, which is not ours to report.
asan_left_out='^(front_symbols|front_programs|shift_run|bench_smoke|model_.*|programs.*|pyverbs)$'
asan_front() {
  echo "left out under sanitizers: $asan_left_out"
  while [ ! -e build/asan/built ]; do
    kill -0 "$behind" 2>/dev/null || return
    sleep 1
  done
  ASAN_OPTIONS=detect_leaks=0 tests build/asan -LE "$compute" -E "$asan_left_out"
}

behind_lane() {
  # The idle class, in a session of its own that is the last of all sessions.
  { echo 19 >/proc/self/autogroup; chrt --idle --pid 0 $$ || renice -n 19 $$; } &>/dev/null
  local bad=0
  if [ "$quick" = no ]; then
    build_preset asan build/asan || return
    touch build/asan/built
  fi
  tests build -L "$compute" || bad=1
  [ "$quick" = yes ] || tests build/asan -L "$compute" -E "$asan_left_out" || bad=1
  return $bad
}
behind_start() {
  rm -f build/asan/built
  mkdir -p build/out
  export -f behind_lane build_preset tests
  export quick compute asan_left_out
  setsid bash -c behind_lane >build/out/behind.log 2>&1 &
  behind=$!
  trap 'kill -- -$behind 2>/dev/null' EXIT
}
# What it printed meanwhile, in one piece.
behind_end() {
  local result
  wait "$behind"
  result=$?
  cat build/out/behind.log
  return $result
}

# shellcheck disable=SC2086
step packages packages_install $packages_build $packages_run $packages_check || exit 1
if [ "$programs" = yes ]; then
  # shellcheck disable=SC2086
  step "more packages" packages_install $packages_programs
fi
step format format
if step "release build" build_preset release build; then
  behind_start
  step "release tests" tests build -LE "$compute"
  [ "$quick" = no ] && step "asan tests" asan_front
  step "computing lane" behind_end
fi
[ "$programs" = yes ] && step "all programs" /usr/bin/python3 tests/programs/programs.py \
  --build build --all --complete --out build/out/all-programs --json build/out/all-programs.json
[ "$programs" = yes ] && step "client matrix" /usr/bin/python3 tests/clients/clients.py --build build \
  --all --complete --jobs 2 --out build/out/all-clients --json build/out/all-clients.json
[ "$tidy" = yes ] && step clang-tidy tidy

echo
echo "== summary, $((SECONDS - begin)) s"
printf '%s\n' "${summary[@]}"
if [ $failed -ne 0 ]; then
  echo "check: FAILED"
  exit 1
fi
echo "check: passed"
