// The table of the stock library; in a file of its own, because tests bring another.
#include "group/below.h"

namespace shift {

const Below* below = nullptr;

}  // namespace shift
