#!/bin/bash
# Tests that a recorded check counts for just the files that were checked, and for the script that recorded it.
set -u
model="$(cd "$(dirname "$0")" && pwd)"
# shellcheck source-path=SCRIPTDIR
. "$model/run.sh"

work="$(mktemp -d)"
trap 'rm -rf --one-file-system "$work"' EXIT
cp -r "$model" "$work/model"
cd "$work/model" || exit
failed=0

# expect WHAT COMMAND...: the command succeeds.
expect() {
  local what="$1"
  shift
  "$@" || { echo "FAILED: $what"; failed=1; }
}
unknown() { ! model_is_checked . "$1"; }

rm -f checked
expect "nothing is recorded at first" unknown check
model_record . check
expect "what is recorded is known" model_is_checked . check
expect "it is not known of the other script" unknown mutations
model_record . mutations
model_record . check
expect "both are known" model_is_checked . mutations
expect "each has one line" [ "$(wc -l <checked)" = 2 ]
for file in shell.pml check.sh mutations/no-fence.sed; do
  cp "$file" "$work/kept"
  echo "# changed" >>"$file"
  expect "a change of $file makes it unknown" unknown check
  cp "$work/kept" "$file"
  expect "and it is known again without it" model_is_checked . check
done
mv mutations/no-fence.sed mutations/other.sed
expect "another name makes it unknown" unknown mutations
[ $failed = 0 ] && echo "passed"
exit $failed
