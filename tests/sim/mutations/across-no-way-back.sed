# bug: a path across rails is not left for one that has a NIC in common with it
# shows: C7
# within: 2000
# file: control/path_book.cc
s/const bool is_straight = .*;/const bool is_straight = false;/
