// Takes blanks from both ends of a piece of text.
#pragma once

#include <string_view>

namespace shift {

inline std::string_view trim(std::string_view s) noexcept {
  const auto first = s.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return s.substr(first, s.find_last_not_of(" \t\r") - first + 1);
}

}  // namespace shift
