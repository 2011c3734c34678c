# bug: an error of a path reaches the application
# shows: C7
# within: 500
# file: group/errors.cc
s/if \(is_path_error\(wc\.status\)\) return true;/if (is_path_error(wc.status)) return false;/
