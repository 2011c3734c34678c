# bug: an atomic with an unknown outcome is posted again
# shows: C5
# within: 500
# file: group/plan.cc
# model: atomic-replayed
s/if \(!plan.knows_atomics\) return .*;//
