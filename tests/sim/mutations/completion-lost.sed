# bug: a completion made by the layer is lost, once
# shows: C1
# within: 500
# file: group/completion.cc
# campaign: lose_completion
s/SHIFT_PLANT\(lose_completion\)/true/
