#!/bin/bash
# Checks the protocol's model in several bounded configurations, each of them exhaustively.
# Usage: check.sh [--large | --unless-checked | --record] [NAME...]
# --unless-checked runs a few only if all have passed with the same model (run.sh); --record notes that they have.
set -u -o pipefail
model="$(cd "$(dirname "$0")" && pwd)"
# shellcheck source-path=SCRIPTDIR
. "$model/run.sh"

# Prints the configurations: name, [cycles,] budgets. config.pml explains the budgets.
configurations() {
  cat <<'EOF'
cuts            -DCUTS=2 -DHEALS=2
cut-and-scare   -DCUTS=1 -DSCARES=1
scares          -DSCARES=2 -DN_B=2 -DNOTIFY_B=2
three-scares    -DSCARES=3 -DEPOCHS=8 -DN_A=1 -DNOTIFY_A=1
no-spare        -DSPARE=0 -DCUTS=1 -DHEALS=1 -DSCARES=1
channel         -DSCARES=1 -DLOSSES=2
channel-gone    -DCUTS=1 -DSCARES=1 -DLOSSES=1 -DRECONNECT=0 -DN_B=0
deaths          -DDEATHS=2
atomic          -DCUTS=1 -DSCARES=1 -DATOMIC_A=1
way-back        -DFIRST_PATH=1 -DDRAINS=2 -DLOSSES=1 -DATOMIC_A=1 -DN_B=2 -DNOTIFY_B=1 -DATOMIC_B=2
orders          -DORDERS=1 -DDRAINS=2 -DATOMIC_A=1 -DSCARES=1
way-back-fault  -DFIRST_PATH=1 -DDRAINS=1 -DCUTS=1 -DSCARES=1 -DN_A=1 -DNOTIFY_A=1
way-back-late   -DFIRST_PATH=1 -DDRAINS=1 -DLATE_SWITCH=1 -DLOSSES=1 -DN_B=2 -DNOTIFY_B=1
way-back-over   -DFIRST_PATH=1 -DDRAINS=1 -DCLOSES=1 -DAPP_ERRORS=1 -DKEYLESS=1 -DN_B=0
early-deadline  -DSCARES=1 -DCUTS=1 -DEARLY_DEADLINE=1 -DN_B=0
closing         -DCLOSES=1 -DSCARES=1 -DCUTS=1 -DN_B=0
app-error       -DAPP_ERRORS=1 -DSCARES=1
refusals        -DUNPROVEN=1 -DKEYLESS=1 -DSCARES=1 -DLOSSES=1 -DN_B=0
early-fault     -DBIND=1 -DCUTS=1 -DHEALS=1 -DSCARES=1 -DN_B=1
no-peer         -DBIND=2 -DCUTS=1 -DN_B=1
cross-rail      -DCROSS -DCUTS=1 -DHEALS=1 -DSCARES=1 -DN_A=1 -DNOTIFY_A=1
copies          -DKEEP_STALE -DDROP_ALL -DSCARES=2 -DN_A=1 -DNOTIFY_A=1 -DN_B=0
ends            cycles -DCUTS=1 -DHEALS=1 -DSCARES=1
ends-way-back   cycles -DFIRST_PATH=1 -DDRAINS=1 -DLOSSES=1
EOF
  [ "$large" = yes ] || return 0
  cat <<'EOF'
large-faults    -DCUTS=2 -DHEALS=2 -DSCARES=1 -DEPOCHS=8
large-channel   -DCUTS=1 -DHEALS=1 -DSCARES=1 -DLOSSES=1
large-scares    -DSCARES=3 -DEPOCHS=8 -DN_A=3 -DNOTIFY_A=2 -DN_B=2 -DNOTIFY_B=2
large-members   -DPATHS=3 -DCUTS=3 -DHEALS=1 -DEPOCHS=8
large-cross     -DCROSS -DDEATHS=2 -DSCARES=1 -DEPOCHS=8
large-copies    -DKEEP_STALE -DDROP_ALL -DSCARES=2
large-way-back  -DFIRST_PATH=1 -DDRAINS=2 -DSCARES=1 -DLOSSES=1 -DN_A=1 -DNOTIFY_A=1
large-closing   -DCLOSES=2 -DSCARES=1 -DLOSSES=1
large-atomic    -DSCARES=1 -DCUTS=1 -DHEALS=1 -DN_A=3 -DNOTIFY_A=4 -DATOMIC_A=2
EOF
}

large=no record=no unless_checked=no names=()
for argument in "$@"; do
  case "$argument" in
    --large) large=yes ;;
    --record) record=yes ;;
    --unless-checked) unless_checked=yes ;;
    -*) echo "usage: $0 [--large | --unless-checked | --record] [NAME...]" >&2; exit 4 ;;
    *) names+=("$argument") large=yes ;;
  esac
done
if spin_missing; then exit 77; fi
[ ${#names[@]} -eq 0 ] || record=no
export SPIN_FLAGS=-Og
[ "$large" = yes ] && export SPIN_HASH=24 SPIN_FLAGS="-O1 -DCOLLAPSE"
if [ "$unless_checked" = yes ] && model_is_checked "$model" check; then
  SPIN_FLAGS=-O0 # they are small
  names=(cut-and-scare channel way-back-late refusals no-peer cross-rail ends-way-back)
  echo "all configurations have passed with this model, so only a few run: ${names[*]}"
fi

work="$(mktemp -d)"
trap 'rm -rf --one-file-system "$work"' EXIT
failed=0 found=0 begin=$SECONDS
printf '%-16s %10s %6s %5s  %s\n' configuration states MiB s result
while read -r name defines; do
  [ ${#names[@]} -eq 0 ] || [[ " ${names[*]} " == *" $name "* ]] || continue
  from=$SECONDS how=safety found=$((found + 1))
  case "$defines" in cycles*) how=cycles defines="${defines#cycles}" ;; esac
  spin_run "$model" "$work/$name" "$defines" "$how"
  verdict="$(spin_verdict "$work/$name")"
  read -r states megabytes <<<"$(spin_size "$work/$name")"
  printf '%-16s %10d %6d %5d  %s\n' "$name" "$states" "$megabytes" $((SECONDS - from)) "${verdict:-holds}"
  if [ -n "$verdict" ]; then
    failed=1
    [ "$how" = cycles ] || "$model/trail.sh" "$work/$name" $defines
  fi
  rm -rf --one-file-system "${work:?}/$name"
done < <(configurations)
if [ ${#names[@]} -ne 0 ] && [ $found -ne ${#names[@]} ]; then
  echo "of ${names[*]}, only $found are configurations"
  failed=1
fi
echo "model: $((SECONDS - begin)) s, $([ $failed = 0 ] && echo passed || echo FAILED)"
[ "$record$failed" != yes0 ] || model_record "$model" check
exit $failed
