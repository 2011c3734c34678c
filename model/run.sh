# Runs the checker once, and knows what has been checked; check.sh and mutations.sh source this file.

# The searches are exhaustive and the same each time, so those of a model that has not changed need not be repeated.
# The file `checked` has a line for each script: its name, and the sum of all files that its result follows from.

# model_sum MODEL-DIRECTORY: prints the sum of the model, its planted bugs and the scripts.
model_sum() {
  (cd "$1" && sha256sum -- *.pml ./*.sh mutations/*.sed | LC_ALL=C sort -k 2 | sha256sum | cut -d ' ' -f 1)
}

# model_is_checked MODEL-DIRECTORY SCRIPT: whether all that the script runs has passed with just these files.
model_is_checked() { grep -qxF "$2 $(model_sum "$1")" "$1/checked" 2>/dev/null; }

# model_record MODEL-DIRECTORY SCRIPT: notes that it has.
model_record() {
  { grep -v "^$2 " "$1/checked" 2>/dev/null; echo "$2 $(model_sum "$1")"; } | LC_ALL=C sort >"$1/checked.new" &&
    mv "$1/checked.new" "$1/checked"
}

# spin_missing: whether Spin or the compiler is missing; prints which.
spin_missing() {
  local tool
  for tool in spin gcc; do
    command -v "$tool" >/dev/null || { echo "model: $tool is not installed"; return 0; }
  done
  return 1
}

# spin_run MODEL-DIRECTORY WORK-DIRECTORY "DEFINES" [cycles]: checks all states and leaves the
# checker's output in WORK-DIRECTORY/out. With `cycles` it looks for runs that never end instead of
# for broken assertions and stuck ends.
spin_run() {
  local model="$1" work="$2" defines="$3" how="${4:-safety}" compile option
  case "$how" in
    cycles) compile=-DNP option=-l ;;
    *) compile=-DSAFETY option= ;;
  esac
  mkdir -p "$work"
  # shellcheck disable=SC2086
  (
    cd "$work" || exit
    spin $defines -a "$model/shift.pml" >spin.out 2>&1 || { cat spin.out; exit 2; }
    # The few processes share everything, so partial-order reduction would have nothing to leave out.
    # Without SPIN_FLAGS, the checker runs for less time than the compiler would take to optimise it.
    gcc ${SPIN_FLAGS:--O0} -w $compile -DNOFAIR -DNOREDUCE -DMEMLIM=4000 -o pan pan.c || exit 2
    nice -n 10 ./pan $option -n -m1000000 -w"${SPIN_HASH:-20}" >out 2>&1
  )
}

# spin_verdict WORK-DIRECTORY: prints the broken rule, or why the run proves nothing; prints nothing if all holds.
spin_verdict() {
  local out="$1/out"
  if grep -qE '^pan:1: assertion violated \(*[A-Za-z_0-9]+' "$out"; then
    grep -m 1 -oE 'assertion violated \(*[A-Za-z_0-9]+' "$out" | sed 's/.*(//'
  elif grep -q '^pan:1: non-progress cycle' "$out"; then
    echo "endless run"
  elif grep -q '^pan:1:' "$out"; then
    sed -nE '0,/^pan:1:/ s/^pan:1: (assertion violated - )?(.*) \(at depth.*/\2/p' "$out"
  elif ! grep -q 'errors: 0' "$out" || grep -qE 'max search depth too small|out of memory|memory limit' "$out"; then
    echo "incomplete: $(tail -n 1 "$out")"
  fi
}

# spin_size WORK-DIRECTORY: prints "STATES MEGABYTES".
spin_size() {
  awk '/states, stored/ { s = $1 } /total actual memory/ { m = $1 } END { printf "%d %d", s, m }' "$1/out"
}
