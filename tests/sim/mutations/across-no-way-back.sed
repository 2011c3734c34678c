# bug: a path across rails is not left for a better path that shares a NIC with it
# shows: C7
# within: 2000
# file: control/path_book.cc
s/const bool is_straight = .*;/const bool is_straight = false;/
