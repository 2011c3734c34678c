// The stock library beneath the front: its functions, and the guard for calls that come back from
// it.
#pragma once

#include "ops/glue.h"

// verbs.h turns these into macros; the front defines the functions behind them.
#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

#define SHIFT_EXPORT extern "C" __attribute__((visibility("default")))

namespace shift::front {

// Filled before any other code of the process can call into the front: by its first constructor.
// Not const data, but nothing writes it afterwards.
extern StockVerbs stock;

// A private function, so not part of the provider's table: the type is an enum of the GID's kind.
using QueryGidType = int (*)(ibv_context* context, uint8_t port, unsigned index, unsigned* type);
extern QueryGidType stock_query_gid_type;

// Some stock functions call public ones, and expect their own structs back. While one of these runs
// on this thread, the front steps aside.
class StockCall {
 public:
  StockCall() noexcept { ++depth_; }
  ~StockCall() { --depth_; }
  StockCall(const StockCall&) = delete;
  StockCall& operator=(const StockCall&) = delete;

  static bool running() noexcept { return depth_ != 0; }

 private:
  static thread_local int depth_;
};

// Whether device lists hold virtual devices in this process. The first call decides, for good.
bool layer_enabled() noexcept;

// Copies what the stock library has put into its exported variables since then into the front's.
void stock_data_sync() noexcept;

}  // namespace shift::front
