#!/bin/bash
# Fuzzes the code that reads untrusted bytes: fuzz.sh [SECONDS] [TARGET...]. Targets: commands packets wqes.
# New findings are left in build/fuzz/findings, and the grown corpus in build/fuzz/corpus.
set -u -o pipefail
cd "$(dirname "$0")/.." || exit
. tools/packages.sh

seconds="${1:-60}"
[ $# -gt 0 ] && shift
targets=("$@")
[ ${#targets[@]} -eq 0 ] && targets=(commands packets wqes)
# shellcheck disable=SC2086
packages_install $packages_build $packages_fuzz || exit
cmake --preset fuzz >/dev/null && cmake --build --preset fuzz || exit

failed=0
for target in "${targets[@]}"; do
  grown="build/fuzz/corpus/$target"
  mkdir -p "$grown" build/fuzz/findings
  echo "== $target, $seconds s"
  "build/fuzz/bin/cxemu_fuzz_$target" -max_total_time="$seconds" -max_len=4096 -timeout=10 \
    -print_final_stats=1 -artifact_prefix="build/fuzz/findings/$target-" \
    "$grown" "emulator/fuzz/corpus/$target" 2>"build/fuzz/$target.log" || failed=1
  tail -n 12 "build/fuzz/$target.log"
done
[ $failed -eq 0 ] && echo "fuzz: nothing found" || echo "fuzz: FOUND, see build/fuzz/findings"
exit $failed
