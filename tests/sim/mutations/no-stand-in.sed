# bug: requests after a READ that runs again complete before the READ
# shows: C1
# within: 2000
# file: group/replay.cc
s/\} else if \(read_pending\) \{/} else if (false) {/
