# shellcheck shell=bash disable=SC1090
# ask.sh FILE CURSOR WORD...: what the completion in FILE proposes for the word number CURSOR, one proposal a line.
# After them come the options that it sets, as "compopt OPTION".
. "$1"
COMP_CWORD="$2"
COMP_WORDS=("${@:3}")
asked_for=()
# bash has this command while it completes, and only then.
compopt() {
  local all="$*"
  asked_for+=("compopt ${all//-o /}")
}
read -r _ _ function _ < <(complete -p "${COMP_WORDS[0]##*/}")
"$function" "${COMP_WORDS[0]}" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
[ ${#COMPREPLY[@]} -eq 0 ] || printf '%s\n' "${COMPREPLY[@]}"
[ ${#asked_for[@]} -eq 0 ] || printf '%s\n' "${asked_for[@]}"
