// Exported verbs on protection domains, memory regions, device memory and address handles.
#include "stock.h"

using shift::front::stock;
namespace ops = shift::ops;

SHIFT_EXPORT ibv_pd* ibv_alloc_pd(ibv_context* context) {
  return ops::owns(context) ? ops::alloc_pd(context) : stock.alloc_pd(context);
}

SHIFT_EXPORT int ibv_dealloc_pd(ibv_pd* pd) {
  return ops::owns(pd->context) ? ops::dealloc_pd(pd) : stock.dealloc_pd(pd);
}

SHIFT_EXPORT ibv_pd* ibv_import_pd(ibv_context* context, uint32_t handle) {
  return ops::owns(context) ? ops::import_pd(context, handle) : stock.import_pd(context, handle);
}

SHIFT_EXPORT void ibv_unimport_pd(ibv_pd* pd) {
  ops::owns(pd->context) ? ops::unimport_pd(pd) : stock.unimport_pd(pd);
}

SHIFT_EXPORT ibv_mr* ibv_reg_mr(ibv_pd* pd, void* addr, size_t length, int access) {
  return ops::owns(pd->context) ? ops::reg_mr(pd, addr, length, access)
                                : stock.reg_mr(pd, addr, length, access);
}

SHIFT_EXPORT ibv_mr* ibv_reg_mr_iova(ibv_pd* pd, void* addr, size_t length, uint64_t iova,
                                     int access) {
  return ops::owns(pd->context) ? ops::reg_mr_iova(pd, addr, length, iova, access)
                                : stock.reg_mr_iova(pd, addr, length, iova, access);
}

SHIFT_EXPORT ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* addr, size_t length, uint64_t iova,
                                      unsigned access) {
  return ops::owns(pd->context) ? ops::reg_mr_iova2(pd, addr, length, iova, access)
                                : stock.reg_mr_iova2(pd, addr, length, iova, access);
}

SHIFT_EXPORT ibv_mr* ibv_reg_dmabuf_mr(ibv_pd* pd, uint64_t offset, size_t length, uint64_t iova,
                                       int fd, int access) {
  return ops::owns(pd->context) ? ops::reg_dmabuf_mr(pd, offset, length, iova, fd, access)
                                : stock.reg_dmabuf_mr(pd, offset, length, iova, fd, access);
}

SHIFT_EXPORT int ibv_rereg_mr(ibv_mr* mr, int flags, ibv_pd* pd, void* addr, size_t length,
                              int access) {
  return ops::owns(mr->context) ? ops::rereg_mr(mr, flags, pd, addr, length, access)
                                : stock.rereg_mr(mr, flags, pd, addr, length, access);
}

SHIFT_EXPORT int ibv_dereg_mr(ibv_mr* mr) {
  return ops::owns(mr->context) ? ops::dereg_mr(mr) : stock.dereg_mr(mr);
}

SHIFT_EXPORT ibv_mr* ibv_import_mr(ibv_pd* pd, uint32_t handle) {
  return ops::owns(pd->context) ? ops::import_mr(pd, handle) : stock.import_mr(pd, handle);
}

SHIFT_EXPORT void ibv_unimport_mr(ibv_mr* mr) {
  ops::owns(mr->context) ? ops::unimport_mr(mr) : stock.unimport_mr(mr);
}

SHIFT_EXPORT ibv_dm* ibv_import_dm(ibv_context* context, uint32_t handle) {
  return ops::owns(context) ? ops::import_dm(context, handle) : stock.import_dm(context, handle);
}

SHIFT_EXPORT void ibv_unimport_dm(ibv_dm* dm) {
  ops::owns(dm->context) ? ops::unimport_dm(dm) : stock.unimport_dm(dm);
}

SHIFT_EXPORT ibv_ah* ibv_create_ah(ibv_pd* pd, ibv_ah_attr* attr) {
  return ops::owns(pd->context) ? ops::create_ah(pd, attr) : stock.create_ah(pd, attr);
}

SHIFT_EXPORT int ibv_init_ah_from_wc(ibv_context* context, uint8_t port, ibv_wc* wc, ibv_grh* grh,
                                     ibv_ah_attr* attr) {
  ibv_context* real = ops::owns(context) ? ops::real_context(context) : context;
  return stock.init_ah_from_wc(real, port, wc, grh, attr);
}

// The stock function would pass the virtual context on to stock code, without coming back through
// the front where the stock library is linked with -Bsymbolic.
SHIFT_EXPORT ibv_ah* ibv_create_ah_from_wc(ibv_pd* pd, ibv_wc* wc, ibv_grh* grh, uint8_t port) {
  if (!ops::owns(pd->context)) return stock.create_ah_from_wc(pd, wc, grh, port);
  ibv_ah_attr attr;
  if (stock.init_ah_from_wc(ops::real_context(pd->context), port, wc, grh, &attr) != 0) {
    return nullptr;
  }
  return ops::create_ah(pd, &attr);
}

SHIFT_EXPORT int ibv_destroy_ah(ibv_ah* ah) {
  return ops::owns(ah->context) ? ops::destroy_ah(ah) : stock.destroy_ah(ah);
}
