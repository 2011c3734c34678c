# bug: auto: the peer's packet number is not taken into account
# shows: auto
# within: 2000
# file: group/plan.cc
# unit: auto_hears_nothing
s/SHIFT_PLANT\(auto_hears_nothing\)/true/
