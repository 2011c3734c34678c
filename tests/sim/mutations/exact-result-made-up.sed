# bug: exact: an atomic whose result is lost completes
# shows: C4
# within: 20000
# file: group/plan.cc
# unit: atomic_result_made_up
s/SHIFT_PLANT\(atomic_result_made_up\)/true/
