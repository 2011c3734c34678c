# bug: the first request that a path has not completed counts as completed
# shows: C4
# within: 5000
# file: group/flushed.cc
# campaign: flushed_taken_for_over
# unit: flushed_taken_for_over
s/SHIFT_PLANT\(flushed_taken_for_over\)/true/
