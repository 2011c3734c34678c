# bug: a success found while draining is delivered and not counted
# shows: C1
# within: 500
# file: group/completion.cc
# model: drained-success-lost
s/^  \+\+group.counters.done\[queue\];/  group.counters.done[queue] += !group.life.errors.switching;/
