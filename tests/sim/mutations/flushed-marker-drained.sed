# bug: a flushed marker counts for a drained queue
# shows: C6
# within: 50000
# file: group/completion.cc
s/if \(success\) return true;/return true;/
