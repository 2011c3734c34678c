// The stock library beneath the front: its functions, and a guard for calls that it makes back into
// the front.
#pragma once

#include "ops/glue.h"

// verbs.h defines these as macros; the front defines the functions of these names.
#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

#define SHIFT_EXPORT extern "C" __attribute__((visibility("default")))

namespace shift::front {

// Filled by the front's first constructor, before any other code of the process can call into the
// front. It is not const, but nothing writes it later.
extern StockVerbs stock;

// A private function, so the provider's table lacks it. `type` is an enum of GID kinds.
using QueryGidType = int (*)(ibv_context* context, uint8_t port, unsigned index, unsigned* type);
extern QueryGidType stock_query_gid_type;

// The stock library's function of that name, in whatever version it has; null: it has none.
void* stock_symbol(const char* name) noexcept;

// Some stock functions call public ones and expect to get their own structs back. While such a
// function runs on this thread, the front passes calls through.
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

// Whether device lists hold virtual devices in this process. The first call decides for good.
bool layer_enabled() noexcept;

// Copies what the stock library has since put into its exported variables into the front's.
void stock_data_sync() noexcept;

}  // namespace shift::front
