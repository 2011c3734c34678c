# bug: exact: a WRITE that was executed in part runs as a whole
# shows: auto
# within: 2000
# file: group/packets.cc
# unit: tail_runs_whole
s/SHIFT_PLANT\(tail_runs_whole\)/true/
