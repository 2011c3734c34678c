# bug: after a trade in vain the leader seeks the better path for ever
# shows: C7
# within: 5000
# file: control/way_back.cc
s/^  wanted_.reset\(\);//
