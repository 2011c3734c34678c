// What a reason means and what helps: the one place that knows it for all commands. It says in
// short what docs/troubleshooting.md says at length.
#pragma once

#include <span>
#include <string_view>

namespace shift::ctl {

struct Advice {
  std::string_view reason;   // a part of the reason as the layer gives it
  std::string_view label;    // in metrics, whose labels must not be anybody's text
  std::string_view missing;  // which proof or condition is missing; a sentence
  std::string_view to_do;    // a sentence
};

std::span<const Advice> all_advice();

// The advice for a reason; the last row, "other", where no row knows it.
const Advice& advice_for(std::string_view reason);

}  // namespace shift::ctl
