// What ends a check early: a call that must succeed and does not, or a peer that says nonsense.
#pragma once

#include <stdexcept>
#include <string>

namespace shift::verify {

class Trouble : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// "WHAT: the error that this number stands for".
[[noreturn]] void fail(const std::string& what, int error);
inline void require(bool holds, const std::string& what, int error) {
  if (!holds) fail(what, error);
}
// For verbs that return 0 or an errno.
inline void succeed(int error, const std::string& what) {
  if (error != 0) fail(what, error);
}

}  // namespace shift::verify
