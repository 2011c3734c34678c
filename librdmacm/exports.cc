// The front of librdmacm: the functions that it exports, each of which asks cm_events.h. All other
// functions are the stock library's, which the dynamic linker finds after this library.
#include <dlfcn.h>

#include "cm_events.h"

#define SHIFT_EXPORT extern "C" __attribute__((visibility("default")))

// Defined in the front of libibverbs (libibverbs/exports_queue.cc); null in a program without it.
extern "C" __attribute__((weak)) bool shift_qp_is_protected(ibv_qp* qp);
extern "C" __attribute__((weak)) bool shift_qp_has_left(ibv_qp* qp);
extern "C" __attribute__((weak)) bool shift_device_is_masked(ibv_context* context);
extern "C" __attribute__((weak)) void shift_on_peer_gone(void (*call)(ibv_qp* qp));

namespace cm = shift::cm;

constinit const cm::Layer cm::layer{
    .qp_is_protected = shift_qp_is_protected,
    .qp_has_left = shift_qp_has_left,
    .device_is_masked = shift_device_is_masked,
    .on_peer_gone = shift_on_peer_gone,
};

namespace {

constinit cm::Stock stock{};

template <typename Function>
void bind(void* handle, Function& function, const char* name) {
  function = reinterpret_cast<Function>(dlvsym(handle, name, "RDMACM_1.0"));
}

// Our DT_NEEDED names the stock library by its path, so it is loaded already.
__attribute__((constructor)) void stock_bind() noexcept {
  void* handle = dlopen(SHIFT_STOCK_LIBRDMACM, RTLD_LAZY | RTLD_NOLOAD);
  if (handle == nullptr) return;
  bind(handle, stock.get_event, "rdma_get_cm_event");
  bind(handle, stock.ack_event, "rdma_ack_cm_event");
  bind(handle, stock.destroy_id, "rdma_destroy_id");
  bind(handle, stock.destroy_ep, "rdma_destroy_ep");
  bind(handle, stock.disconnect, "rdma_disconnect");
  bind(handle, stock.migrate_id, "rdma_migrate_id");
}

// Whether the stock library's calls to itself come to us depends on how it was linked.
bool is_stock(const void* caller) {
  Dl_info ours{}, theirs{};
  return dladdr(caller, &ours) != 0 &&
         dladdr(reinterpret_cast<const void*>(stock.get_event), &theirs) != 0 &&
         ours.dli_fbase == theirs.dli_fbase;
}

}  // namespace

SHIFT_EXPORT int rdma_get_cm_event(rdma_event_channel* channel, rdma_cm_event** event) {
  return cm::get_event(stock, channel, event, is_stock(__builtin_return_address(0)));
}

SHIFT_EXPORT int rdma_ack_cm_event(rdma_cm_event* event) {
  return cm::ack_event(stock, event);
}

SHIFT_EXPORT int rdma_disconnect(rdma_cm_id* id) {
  return cm::disconnect(stock, id);
}

SHIFT_EXPORT int rdma_migrate_id(rdma_cm_id* id, rdma_event_channel* channel) {
  return cm::migrate_id(stock, id, channel);
}

SHIFT_EXPORT int rdma_destroy_id(rdma_cm_id* id) {
  return cm::destroy_id(stock, id);
}

SHIFT_EXPORT void rdma_destroy_ep(rdma_cm_id* id) {
  cm::destroy_ep(stock, id);
}
