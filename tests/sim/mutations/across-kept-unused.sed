# bug: after a trade in vain a path that is ready is not taken
# shows: C7
# within: 50000
# file: control/path_maker.cc
s/return go_on_with\(\{ready->path, ready->generation\}\);/(void)ready;/
