# bug: nothing bounds the way to another path
# shows: C6
# within: 500
# file: control/actions.cc
# model: deadline-not-armed
s/binding.deadline = control_.timer_start\(binding.give_up, /(void)(/
