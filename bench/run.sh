#!/bin/sh
# Runs every measurement on the build in ../build or in the given folder. It takes some minutes.
set -eu
here=$(dirname "$(readlink -f "$0")")
build=${1:-$here/../build}
status=0
"$here/performance.py" --build "$build" || status=1
"$here/switch_time.py" --build "$build" || status=1
"$here/detection_time.py" --build "$build" || status=1
"$here/control_cost.py" --build "$build" || status=1
"$here/spread.py" --build "$build" || status=1
exit $status
