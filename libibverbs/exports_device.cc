// Exported verbs on devices and contexts. This is where real devices become virtual ones.
#include <cerrno>

#include "direct_verbs.h"
#include "stock.h"
#include "unknown_verbs.h"

using shift::front::layer_enabled;
using shift::front::stock;
using shift::front::StockCall;
namespace ops = shift::ops;

SHIFT_EXPORT ibv_device** ibv_get_device_list(int* count) {
  if (StockCall::running() || !layer_enabled()) return stock.get_device_list(count);
  if (count != nullptr) *count = 0;
  shift::front::direct_verbs_load();
  int real_count = 0;
  ibv_device** real = stock.get_device_list(&real_count);
  shift::front::stock_data_sync();
  if (real == nullptr) return nullptr;
  const int stock_errno = errno;
  ibv_device** list = ops::device_list_wrap(real, real_count);
  if (list == nullptr) {
    const int wrap_errno = errno;
    stock.free_device_list(real);
    errno = wrap_errno;
    return nullptr;
  }
  errno = stock_errno;
  if (count != nullptr) {
    while (list[*count] != nullptr) ++*count;
  }
  return list;
}

SHIFT_EXPORT void ibv_free_device_list(ibv_device** list) {
  if (StockCall::running() || !layer_enabled()) return stock.free_device_list(list);
  ops::device_list_free(list);
}

SHIFT_EXPORT __be64 ibv_get_device_guid(ibv_device* device) {
  return stock.get_device_guid(ops::owns(device) ? ops::real_device(device) : device);
}

SHIFT_EXPORT int ibv_get_device_index(ibv_device* device) {
  return stock.get_device_index(ops::owns(device) ? ops::real_device(device) : device);
}

SHIFT_EXPORT ibv_context* ibv_open_device(ibv_device* device) {
  if (!ops::owns(device)) return stock.open_device(device);
  ibv_context* context = ops::open_device(device);
  if (context != nullptr && ops::owns(context)) {
    shift::front::unknown_verbs_refuse(context, ops::real_context(context));
  }
  return context;
}

SHIFT_EXPORT int ibv_close_device(ibv_context* context) {
  return ops::owns(context) ? ops::close_device(context) : stock.close_device(context);
}

// An imported context belongs to another process, which may or may not protect it; here it stays
// real. The stock library looks for its device in the public device list.
SHIFT_EXPORT ibv_context* ibv_import_device(int cmd_fd) {
  const StockCall guard;
  return stock.import_device(cmd_fd);
}

SHIFT_EXPORT int ibv_query_device(ibv_context* context, ibv_device_attr* attr) {
  return ops::owns(context) ? ops::query_device(context, attr) : stock.query_device(context, attr);
}

// The entry point of programs built before the struct grew: the new fields must not be written.
SHIFT_EXPORT int ibv_query_port(ibv_context* context, uint8_t port, _compat_ibv_port_attr* attr) {
  if (!ops::owns(context)) return stock.query_port(context, port, attr);
  return ops::query_port(context, port, reinterpret_cast<ibv_port_attr*>(attr),
                         offsetof(ibv_port_attr, port_cap_flags2));
}

SHIFT_EXPORT int ibv_query_gid(ibv_context* context, uint8_t port, int index, ibv_gid* gid) {
  return ops::owns(context) ? ops::query_gid(context, port, index, gid)
                            : stock.query_gid(context, port, index, gid);
}

SHIFT_EXPORT int _ibv_query_gid_ex(ibv_context* context, uint32_t port, uint32_t index,
                                   ibv_gid_entry* entry, uint32_t flags, size_t entry_size) {
  return ops::owns(context) ? ops::query_gid_ex(context, port, index, entry, flags, entry_size)
                            : stock.query_gid_ex(context, port, index, entry, flags, entry_size);
}

SHIFT_EXPORT ssize_t _ibv_query_gid_table(ibv_context* context, ibv_gid_entry* entries,
                                          size_t max_entries, uint32_t flags, size_t entry_size) {
  return ops::owns(context)
             ? ops::query_gid_table(context, entries, max_entries, flags, entry_size)
             : stock.query_gid_table(context, entries, max_entries, flags, entry_size);
}

SHIFT_EXPORT int ibv_query_pkey(ibv_context* context, uint8_t port, int index, __be16* pkey) {
  return ops::owns(context) ? ops::query_pkey(context, port, index, pkey)
                            : stock.query_pkey(context, port, index, pkey);
}

SHIFT_EXPORT int ibv_get_pkey_index(ibv_context* context, uint8_t port, __be16 pkey) {
  return ops::owns(context) ? ops::get_pkey_index(context, port, pkey)
                            : stock.get_pkey_index(context, port, pkey);
}

SHIFT_EXPORT int ibv_resolve_eth_l2_from_gid(ibv_context* context, ibv_ah_attr* attr,
                                             uint8_t eth_mac[6], uint16_t* vid) {
  ibv_context* real = ops::owns(context) ? ops::real_context(context) : context;
  return stock.resolve_eth_l2_from_gid(real, attr, eth_mac, vid);
}

SHIFT_EXPORT int ibv_query_gid_type(ibv_context* context, uint8_t port, unsigned index,
                                    unsigned* type) {
  ibv_context* real = ops::owns(context) ? ops::real_context(context) : context;
  return shift::front::stock_query_gid_type(real, port, index, type);
}
