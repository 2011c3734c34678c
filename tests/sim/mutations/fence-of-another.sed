# bug: in a batch of fences, what the first one found counts for all
# shows: C7
# within: 20000
# file: control/fences.cc
s/running\.fence\.entries\(\)\[k\]/running.fence.entries()[0]/
