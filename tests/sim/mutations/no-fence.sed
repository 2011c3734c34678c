# bug: the old path is left without having been shut
# shows: C7
# within: 500
# file: group/fence.cc
# model: no-fence
# campaign: no_fence
s/SHIFT_PLANT\(no_fence\)/true/
