# shellcheck shell=bash disable=SC2034
# Debian packages that the scripts need; sourced by quickstart.sh and check.sh.

packages_build="g++ cmake ninja-build python3 libibverbs-dev ibverbs-providers libgtest-dev
  libcli11-dev nlohmann-json3-dev libfmt-dev"
packages_run="ibverbs-utils perftest python3-matplotlib"
packages_check="clang-format clang-tidy"

# packages_install NAME...: installs what is missing, and says so.
packages_install() {
  local name missing=()
  for name in "$@"; do
    dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null | grep -qx installed ||
      missing+=("$name")
  done
  [ ${#missing[@]} -eq 0 ] && return 0
  if ! command -v apt-get >/dev/null; then
    echo "Not Debian? These packages, or what they hold, are needed: ${missing[*]}" >&2
    return 1
  fi
  if [ "$(id -u)" -ne 0 ]; then
    echo "Missing packages. Run as root: apt-get install --no-install-recommends ${missing[*]}" >&2
    return 1
  fi
  echo "Installing ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  local log
  log=$(mktemp)
  if ! { apt-get -qq update && apt-get -qq install -y --no-install-recommends "${missing[@]}"; } \
      >"$log" 2>&1; then
    tail -20 "$log" >&2
    echo "apt-get failed; the whole log: $log" >&2
    return 1
  fi
  rm -f "$log"
}

# build_preset NAME DIRECTORY: configures and builds, with ninja's progress on a terminal.
build_preset() {
  local log="$2/build.log"
  mkdir -p "$2"
  if ! cmake --preset "$1" >"$log" 2>&1; then
    cat "$log" >&2
    return 1
  fi
  if [ -t 1 ]; then
    cmake --build "$2"
  else
    # Not a terminal: a line now and then, and all of it when something fails.
    if ! cmake --build "$2" >>"$log" 2>&1; then
      grep -vE '^\[[0-9]+/[0-9]+\]' "$log" | tail -60 >&2
      return 1
    fi
    grep -E '^\[[0-9]+/[0-9]+\]|no work' "$log" | tail -1
  fi
}
