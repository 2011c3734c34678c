# bug: of QPs that are shut together, what the first one's fence found counts for all
# shows: C7
# within: 20000
# file: control/fences.cc
s/running\.fence\.entries\(\)\[k\]/running.fence.entries()[0]/
