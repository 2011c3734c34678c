// The stock library finds a context's verbs through a table of its own, in a layout that every
// release may change. So it makes that table itself: its helper for providers fills the table of a
// new context with functions that refuse every verb. No provider takes this context over. The
// virtual contexts of the process share its table, which nobody changes.
#include "unknown_verbs.h"

#include <mutex>

#include "stock.h"

namespace shift::front {
namespace {

// _verbs_init_and_alloc_context() of the stock library, a private function. It allocates `size`
// bytes with a context at `offset`, here without a descriptor (-1) and of no driver (0).
using MakeContext = void* (*)(ibv_device* device, int descriptor, size_t size,
                              verbs_context* offset, uint32_t driver);

verbs_ex_private* table_make(const ibv_context* real) {
  const auto make = reinterpret_cast<MakeContext>(stock_symbol("_verbs_init_and_alloc_context"));
  if (make == nullptr || real == nullptr) return nullptr;
  const verbs_context* extended = verbs_get_ctx(const_cast<ibv_context*>(real));
  if (extended == nullptr) return nullptr;
  // A verbs_context grows at its beginning. The ibv_context is always its end.
  const size_t size = extended->sz;
  if (size < sizeof(verbs_context)) return nullptr;
  // A checker of lost memory must find the block, whose table alone we use.
  static constinit char* made = nullptr;
  made = static_cast<char*>(make(real->device, -1, size, nullptr, 0));
  if (made == nullptr) return nullptr;
  const auto* context = reinterpret_cast<verbs_context*>(made + size - sizeof(verbs_context));
  return context->sz == size ? context->priv : nullptr;
}

}  // namespace

void unknown_verbs_refuse(ibv_context* context, const ibv_context* real) noexcept {
  // It is kept until the process ends, and so is the struct of the device that it was made of.
  static constinit std::mutex mutex;
  static constinit verbs_ex_private* table = nullptr;
  static constinit bool tried = false;
  std::lock_guard lock(mutex);
  if (!tried) table = table_make(real);
  if (!tried && table == nullptr) {
    ops::warn(
        "the stock library makes no table of verbs: a program that calls a verb younger than "
        "this build with an object of a protected device will crash");
  }
  tried = true;
  verbs_get_ctx(context)->priv = table;
}

}  // namespace shift::front
