// Defines the pointer to the stock library's table. It has a file of its own, because tests define
// another.
#include "group/stock.h"

namespace shift {

const StockVerbs* stock = nullptr;

}  // namespace shift
