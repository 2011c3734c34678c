#!/bin/bash
# Plants each bug of mutations/ into a copy of the model and demands that the checker finds it. A
# checker that misses one proves nothing about the rule it breaks.
# Usage: mutations.sh [--unless-checked | --record | NAME...]
# --unless-checked runs one for each rule only if all were found in the same model (run.sh); --record notes that they
# were.
set -u -o pipefail
model="$(cd "$(dirname "$0")" && pwd)"
# shellcheck source-path=SCRIPTDIR
. "$model/run.sh"
if spin_missing; then exit 77; fi

record=no only_rules=no
case "${1:-}" in
  --record) record=yes; shift ;;
  --unless-checked)
    shift
    if model_is_checked "$model" mutations; then
      only_rules=yes
      echo "all bugs were found in this model, so only one for each rule is planted"
    fi ;;
  -*) echo "usage: $0 [--unless-checked | --record | NAME...]" >&2; exit 4 ;;
esac
[ $# -eq 0 ] || record=no

work="$(mktemp -d)"
trap 'rm -rf --one-file-system "$work"' EXIT

# field FILE NAME: prints the value of the line "# NAME: VALUE".
field() { sed -n "s/^# $2: //p" "$1"; }

# plant FILE: applies a mutation, a sed script that names the files it changes; it changes one line in each.
plant() {
  local file changed
  rm -rf --one-file-system "$work/model"
  mkdir -p "$work/model"
  cp "$model"/*.pml "$model/trail.sh" "$work/model"
  for file in $(field "$1" file); do
    sed -E -i -f "$1" "$work/model/$file"
    changed="$(diff "$model/$file" "$work/model/$file" | grep -c '^<')"
    [ "$changed" = 1 ] || { echo "changes $changed lines of $file instead of one"; return 1; }
  done
}

failed=0 rules=
printf '%-28s %-18s %9s  %s\n' bug found states result
for mutation in "$model"/mutations/*.sed; do
  name="$(basename "$mutation" .sed)"
  [ $# -eq 0 ] || [[ " $* " == *" $name "* ]] || continue
  caught="$(field "$mutation" caught)" states=0
  if [ $only_rules = yes ]; then
    [[ "$rules" != *"<$caught>"* ]] || continue
    rules+="<$caught>"
  fi
  if found="$(plant "$mutation")"; then
    spin_run "$work/model" "$work/run" "$(field "$mutation" with)" "$(field "$mutation" how)"
    found="$(spin_verdict "$work/run")"
    read -r states _ <<<"$(spin_size "$work/run")"
  fi
  result=caught
  [ "$found" = "$caught" ] || { result="MISSED, expected $caught"; failed=1; }
  printf '%-28s %-18s %9d  %s\n' "$name" "${found:-nothing}" "$states" "$result"
  [ -z "${SHOW_TRAIL:-}" ] || "$work/model/trail.sh" "$work/run" $(field "$mutation" with)
  rm -rf --one-file-system "$work/run"
done
[ "$record$failed" != yes0 ] || model_record "$model" mutations
exit $failed
