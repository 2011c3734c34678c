// Exported verbs that the stock library of the build lacks, while the one of the run may have them.
// They are exported in any case: on a host whose stock library lacks them, they answer as one does
// whose kernel is too old. (To show them only where they are there would take symbols that are
// resolved at run time, and the dynamic linker complains of those in a library that the stock
// library's own calls reach.)
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

ibv_mr* refuse(int error) {
  errno = error;
  return nullptr;
}

// A registration on a virtual domain, or, where the stock library cannot do it, on a real one.
// Virtual devices have no DMA handles, because ibv_alloc_dmah() makes none for them: a handle holds
// for one NIC. A buffer of ibv_alloc_buf() is plain memory there.
ibv_mr* register_by(ibv_pd* pd, const MrInitAttr& attr) {
  if (attr.mask & ~(kIova | kAddr | kFd | kFdOffset | kBuffer)) return refuse(EOPNOTSUPP);
  const bool is_virtual = ops::owns(pd->context);
  if (attr.mask == (kFd | kFdOffset | kIova)) {
    const auto make = is_virtual ? &ops::reg_dmabuf_mr : shift::front::stock.reg_dmabuf_mr;
    if (make == nullptr) return refuse(EOPNOTSUPP);
    return make(pd, attr.fd_offset, attr.length, attr.iova, attr.fd, attr.access);
  }
  const uint64_t mask = attr.mask & ~kBuffer;
  if (mask != kAddr && mask != (kAddr | kIova)) return refuse(EINVAL);
  const uint64_t iova = mask & kIova ? attr.iova : reinterpret_cast<uintptr_t>(attr.addr);
  const auto make = is_virtual ? &ops::reg_mr_iova2 : shift::front::stock.reg_mr_iova2;
  return make(pd, attr.addr, attr.length, iova, static_cast<unsigned>(attr.access));
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
}

}  // namespace shift::front

// The functions have names of their own here, since a younger verbs.h declares the verbs.
#define SHIFT_EXPORT_NEWER(verb) __asm__("ibv_" #verb)
SHIFT_EXPORT int newer_query_port_speed(ibv_context* context, uint32_t port, uint64_t* speed)
    SHIFT_EXPORT_NEWER(query_port_speed);
SHIFT_EXPORT ibv_mr* newer_reg_mr_ex(ibv_pd* pd, MrInitAttr* attr) SHIFT_EXPORT_NEWER(reg_mr_ex);
SHIFT_EXPORT ibv_mr* newer_reg_buf_mr(ibv_pd* pd, void* buffer, void* addr, size_t length,
                                      int access) SHIFT_EXPORT_NEWER(reg_buf_mr);

// `speed` is in units of 100 Mb/s.
int newer_query_port_speed(ibv_context* context, uint32_t port, uint64_t* speed) {
  if (stock_query_port_speed == nullptr) return EOPNOTSUPP;
  return stock_query_port_speed(ops::owns(context) ? ops::real_context(context) : context, port,
                                speed);
}

ibv_mr* newer_reg_mr_ex(ibv_pd* pd, MrInitAttr* attr) {
  const bool is_ours = ops::owns(pd->context) || stock_reg_mr_ex == nullptr;
  return is_ours ? register_by(pd, *attr) : stock_reg_mr_ex(pd, attr);
}

ibv_mr* newer_reg_buf_mr(ibv_pd* pd, void* buffer, void* addr, size_t length, int access) {
  if (!ops::owns(pd->context)) {
    return stock_reg_buf_mr != nullptr ? stock_reg_buf_mr(pd, buffer, addr, length, access)
                                       : refuse(EOPNOTSUPP);
  }
  MrInitAttr attr{};
  attr.length = length;
  attr.access = access;
  attr.mask = kAddr | kBuffer;
  attr.addr = addr;
  return register_by(pd, attr);
}
