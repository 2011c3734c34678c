# bug: no deadline bounds the round
# shows: C6
# within: 500
# file: control/round.cc
# model: deadline-not-armed
s/^  deadline_look\(\);$//
