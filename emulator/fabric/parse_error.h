// What is wrong with a word that a user has written.
#pragma once

#include <string>

namespace cxemu {

// Always false, so that a parser may return it.
inline bool fail(std::string* error, const std::string& word, const std::string& why) {
  *error = word + ": " + why;
  return false;
}

}  // namespace cxemu
