# bug: what follows a repeated READ completes before it
# shows: C1
# within: 2000
# file: group/replay.cc
s/\} else if \(read_pending\) \{/} else if (false) {/
