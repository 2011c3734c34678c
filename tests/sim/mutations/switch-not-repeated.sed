# bug: a new connection does not carry Switch again
# shows: C7
# within: 1000
# file: control/binding.cc
s/^      send_switch\(binding\);//
