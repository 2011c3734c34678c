// Exported verbs that the stock library of the build lacks, while the one of the run may have them.
// A program must find them exactly where the stock library has them, since programs probe for
// them. So their symbols are resolved while the program runs (ifunc): dlsym() returns null for a
// verb that the stock library lacks.
#include "exports_newer.h"

#include <cerrno>

#include "stock.h"

namespace ops = shift::ops;

namespace {

// ibv_mr_init_attr of IBVERBS_1.17. Version 1.15 ends before `buffer`.
struct MrInitAttr {
  size_t length;
  int access;
  uint64_t mask;  // says which of the following fields hold a value
  uint64_t iova;
  void* addr;
  int fd;
  uint64_t fd_offset;
  void* dma_handle;
  void* buffer;
};
constexpr uint64_t kIova = 1, kAddr = 2, kFd = 4, kFdOffset = 8, kBuffer = 32;

// The stock library's functions; null: it has none.
int (*stock_query_port_speed)(ibv_context*, uint32_t port, uint64_t* speed) = nullptr;
ibv_mr* (*stock_reg_mr_ex)(ibv_pd*, MrInitAttr*) = nullptr;
ibv_mr* (*stock_reg_buf_mr)(ibv_pd*, void* buffer, void* addr, size_t length, int access) = nullptr;
bool is_bound = false;

ibv_mr* refuse(int error) {
  errno = error;
  return nullptr;
}

// `speed` is in units of 100 Mb/s.
int query_port_speed(ibv_context* context, uint32_t port, uint64_t* speed) {
  if (stock_query_port_speed == nullptr) return EOPNOTSUPP;
  return stock_query_port_speed(ops::owns(context) ? ops::real_context(context) : context, port,
                                speed);
}

// Virtual devices have no DMA handles, because ibv_alloc_dmah() makes none for them: a handle holds
// for one NIC. A buffer of ibv_alloc_buf() is plain memory there.
ibv_mr* reg_mr_ex(ibv_pd* pd, MrInitAttr* attr) {
  if (!ops::owns(pd->context)) {
    return stock_reg_mr_ex != nullptr ? stock_reg_mr_ex(pd, attr) : refuse(EOPNOTSUPP);
  }
  if (attr->mask & ~(kIova | kAddr | kFd | kFdOffset | kBuffer)) return refuse(EOPNOTSUPP);
  const uint64_t mask = attr->mask & ~kBuffer;
  if (mask == (kFd | kFdOffset | kIova) && mask == attr->mask) {
    return ops::reg_dmabuf_mr(pd, attr->fd_offset, attr->length, attr->iova, attr->fd,
                              attr->access);
  }
  if (mask != kAddr && mask != (kAddr | kIova)) return refuse(EINVAL);
  const uint64_t iova = mask & kIova ? attr->iova : reinterpret_cast<uintptr_t>(attr->addr);
  return ops::reg_mr_iova2(pd, attr->addr, attr->length, iova, static_cast<unsigned>(attr->access));
}

ibv_mr* reg_buf_mr(ibv_pd* pd, void* buffer, void* addr, size_t length, int access) {
  if (ops::owns(pd->context)) {
    return ops::reg_mr_iova2(pd, addr, length, reinterpret_cast<uintptr_t>(addr),
                             static_cast<unsigned>(access));
  }
  return stock_reg_buf_mr != nullptr ? stock_reg_buf_mr(pd, buffer, addr, length, access)
                                     : refuse(EOPNOTSUPP);
}

template <typename Function>
void bind(Function& function, const char* name) {
  function = reinterpret_cast<Function>(shift::front::stock_symbol(name));
}

}  // namespace

namespace shift::front {

void newer_verbs_bind() noexcept {
  bind(stock_query_port_speed, "ibv_query_port_speed");
  bind(stock_reg_mr_ex, "ibv_reg_mr_ex");
  bind(stock_reg_buf_mr, "ibv_reg_buf_mr");
  is_bound = true;
}

}  // namespace shift::front

// Exports ibv_<verb>, whose version the symbol map names. A program that is linked with the verb
// has it resolved before newer_verbs_bind(); the dynamic linker started that program, so some
// library must have the verb. No sanitizer may be asked so early.
#define SHIFT_EXPORT_NEWER(verb)                                                                   \
  extern "C" {                                                                                     \
  __attribute__((used, no_sanitize("address", "thread", "undefined"))) static auto find_##verb() { \
    return !is_bound || stock_##verb != nullptr ? &verb : nullptr;                                 \
  }                                                                                                \
  __attribute__((visibility("default"),                                                            \
                 ifunc("find_" #verb))) decltype(verb) exported_##verb __asm__("ibv_" #verb);      \
  }

SHIFT_EXPORT_NEWER(query_port_speed)
SHIFT_EXPORT_NEWER(reg_mr_ex)
SHIFT_EXPORT_NEWER(reg_buf_mr)
