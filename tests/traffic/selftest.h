// Proves that the judge judges: plants each kind of corruption into its own input.
#pragma once

namespace traffic {

// 0 when every planted corruption is reported under its name and clean runs report nothing.
int selftest();

}  // namespace traffic
