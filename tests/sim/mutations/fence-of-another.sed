# bug: of QPs that are shut together, what the first one's fence found counts for all
# shows: C7
# within: 20000
# file: control/actions.cc
s/done->fence.entries\(\)\[k\]/done->fence.entries()[0]/
