# bug: the path that the current one was given up for is sought for ever
# shows: C7
# within: 5000
# file: control/way_back.cc
s/^  wanted_.reset\(\);//
