# bug: the old path is left without a fence
# shows: C7
# within: 500
# file: group/fence.cc
# model: no-fence
# campaign: no_fence
s/SHIFT_PLANT\(no_fence\)/true/
