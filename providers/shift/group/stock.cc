// The table of the stock library; in a file of its own, because tests bring another.
#include "group/stock.h"

namespace shift {

const StockVerbs* stock = nullptr;

}  // namespace shift
