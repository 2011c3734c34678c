# bug: the deadline of a round that is over stays armed
# shows: C7
# within: 10000
# file: control/actions.cc
s/control_.timer_cancel\(std::exchange\(binding.deadline, 0\)\);/binding.deadline = 0;/
