// Verbs of stock libraries that are younger than the one of the build.
#pragma once

namespace shift::front {

// Looks for them in the stock library of this run. The front's first constructor calls it.
void newer_verbs_bind() noexcept;

}  // namespace shift::front
