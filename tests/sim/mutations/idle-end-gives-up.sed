# bug: an end gives up although nothing of its application's waits
# shows: C7
# within: 2000
# file: control/round.cc
s/sends.first >= waiting_to_/sends.first > waiting_to_/
