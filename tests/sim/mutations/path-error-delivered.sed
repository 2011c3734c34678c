# bug: an error of a path reaches the application
# shows: C7
# within: 500
# file: group/completion.cc
s/const bool path_error = .*;/const bool path_error = false;/
