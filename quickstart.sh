#!/bin/bash
# Installs what is missing, builds, and shows the main job on emulated NICs. The exit status tells.
set -eu -o pipefail
cd "$(dirname "$0")"
. tools/packages.sh

begin=$SECONDS
echo "== packages"
# shellcheck disable=SC2086
packages_install $packages_build $packages_run
echo "== build (a few minutes the first time)"
build_preset release build cxemu shift-run fronts shift-traffic
echo "== demo ($((SECONDS - begin)) s so far)"
exec /usr/bin/python3 tests/e2e/demo.py --build build --out out
