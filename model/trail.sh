#!/bin/bash
# Prints the last trail in words. Usage: trail.sh DIRECTORY-WITH-TRAIL DEFINES...
here="$(cd "$(dirname "$0")" && pwd)"
cd "$1" || exit
shift
spin -k shift.pml.trail "$@" "$here/shift.pml" 2>&1 | awk -v table="$here/table.pml" '
  BEGIN { while ((getline line < table) > 0) if (split(line, f, " ") == 3 && f[1] == "#define") name[substr(f[2], 1, 1) f[3]] = substr(f[2], 3) }
  / S[0-9]+ \+ E[0-9]+/ { gsub(/,/, " ,"); for (i = 1; i <= NF; i++) if ($i in name) $i = name[$i] ; gsub(/ ,/, ",") }
  /^ *#processes/ { exit }
  { sub(/^ +/, ""); print }'
