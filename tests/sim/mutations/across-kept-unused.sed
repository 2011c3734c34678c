# bug: a ready path is not taken when the better one does not work
# shows: C7
# within: 50000
# file: control/attempts.cc
s/(if \(const auto\* ready = binding.book.best_ready\(\)\)) return .*/\1 (void)ready;/
