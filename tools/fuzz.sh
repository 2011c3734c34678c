#!/bin/bash
# Fuzzes the code that reads untrusted bytes: fuzz.sh [SECONDS] [TARGET...]. Without targets, all run.
# Targets of the emulator: commands packets wqes.
# Targets of the layer: config coordinator first framing local messages store udp.
# New findings are left in build/fuzz/findings, and the grown corpus in build/fuzz/corpus.
set -u -o pipefail
cd "$(dirname "$0")/.." || exit
. tools/packages.sh

emulator=(commands packets wqes)
layer=(config coordinator first framing local messages store udp)
seconds="${1:-60}"
[ $# -gt 0 ] && shift
targets=("$@")
[ ${#targets[@]} -eq 0 ] && targets=("${emulator[@]}" "${layer[@]}")
# shellcheck disable=SC2086
packages_install $packages_build $packages_fuzz || exit
cmake --preset fuzz >/dev/null && cmake --build --preset fuzz || exit

failed=0
for target in "${targets[@]}"; do
  if [ -d "tests/fuzz/corpus/$target" ]; then
    fuzzer="shift_fuzz_$target" corpus="tests/fuzz/corpus/$target"
  else
    fuzzer="cxemu_fuzz_$target" corpus="emulator/fuzz/corpus/$target"
  fi
  # A schedule and its forged messages take few bytes, and longer inputs only take longer.
  case "$target" in
    coordinator) longest=256 ;;
    *) longest=4096 ;;
  esac
  grown="build/fuzz/corpus/$target"
  mkdir -p "$grown" build/fuzz/findings
  echo "== $target, $seconds s"
  "build/fuzz/bin/$fuzzer" -max_total_time="$seconds" -max_len="$longest" -timeout=10 \
    -print_final_stats=1 -artifact_prefix="build/fuzz/findings/$target-" \
    "$grown" "$corpus" 2>"build/fuzz/$target.log" || failed=1
  tail -n 12 "build/fuzz/$target.log"
done
[ $failed -eq 0 ] && echo "fuzz: nothing found" || echo "fuzz: FOUND, see build/fuzz/findings"
exit $failed
