# bug: an atomic without a signal that completed long ago counts as under way
# shows: C7
# within: 5000
# file: group/fence.cc
s/if \(!flushed\) return;/return;/
