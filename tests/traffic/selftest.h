// Proves that the judge sees each kind of corruption, by planting it into the judge's input.
#pragma once

namespace traffic {

// Returns 0 when every planted corruption is reported under its name and clean runs report nothing.
int selftest();

}  // namespace traffic
