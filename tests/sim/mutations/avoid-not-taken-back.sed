# bug: that a NIC need not be left any more is lost with a connection
# shows: C7
# within: 20000
# file: control/avoidance.cc
s/has_said_ \|\| members\(\) != 0/members() != 0/
