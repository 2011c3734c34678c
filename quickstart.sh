#!/bin/bash
# Installs missing packages, builds, and shows the layer's main job on emulated NICs. The exit status is 0 when
# all was right.
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
