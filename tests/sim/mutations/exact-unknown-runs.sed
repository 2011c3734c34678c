# bug: exact: a request without proof runs again
# shows: exact
# within: 20000
# file: group/plan.cc
# unit: unknown_is_unexecuted
s/SHIFT_PLANT\(unknown_is_unexecuted\)/true/
