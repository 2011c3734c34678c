// The queries about a virtual device: they are answered by the default NIC, within what all members
// can do, and without a sign of a fault that is masked.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <mutex>
#include <new>
#include <optional>

#include "group/port.h"
#include "ops/capabilities.h"
#include "ops/entry.h"
#include "ops/tables.h"

namespace shift::ops {
namespace {

using group::Context;
using group::kDefault;

int real_query_port(ibv_context* real, uint8_t port, ibv_port_attr* attr, size_t size) {
  return verbs_get_ctx(real)->query_port(real, port, attr, size);
}

bool is_masking(Context& context) {
  std::lock_guard lock(context.mutex);
  return std::any_of(context.groups.begin(), context.groups.end(),
                     [](const group::Group* group) { return group->life.path.off_default.load(); });
}

// The call itself was at fault, so the NIC's answer says nothing of its addresses.
bool is_callers_mistake(int error) {
  return error == EINVAL || error == EOPNOTSUPP;
}

// The next functions are verbs_context entries, which inline functions call in the application.

int vctx_query_device_ex(ibv_context* context, const ibv_query_device_ex_input* input,
                         ibv_device_attr_ex* attr, size_t size) {
  Context* c = Context::from(context);
  auto* real = verbs_get_ctx(c->members[kDefault].real);
  const int error = real->query_device_ex(c->members[kDefault].real, input, attr, size);
  if (error != 0 && !c->members[kDefault].dead) return error;
  ibv_device_attr_ex ours = c->device_attr;
  const size_t known = std::min(size, sizeof ours);
  if (error != 0) {
    std::memset(attr, 0, size);
  } else {
    std::memcpy(&ours, attr, known);
  }
  limit_to(ours, c->common_attr);
  std::memcpy(attr, &ours, known);
  return 0;
}

int vctx_query_port(ibv_context* context, uint8_t port, ibv_port_attr* attr, size_t size) {
  return query_port(context, port, attr, size);
}

int compat_query_port(ibv_context* context, uint8_t port, _compat_ibv_port_attr* attr) {
  return query_port(context, port, reinterpret_cast<ibv_port_attr*>(attr),
                    offsetof(ibv_port_attr, port_cap_flags2));
}

// Reads the default NIC's clock, which completion timestamps are taken from.
int vctx_query_rt_values(ibv_context* context, ibv_values_ex* values) {
  ibv_context* real = Context::from(context)->members[kDefault].real;
  const auto query = verbs_get_ctx_op(real, query_rt_values);
  return query != nullptr ? query->query_rt_values(real, values) : EOPNOTSUPP;
}

}  // namespace

int query_device(ibv_context* context, ibv_device_attr* attr) noexcept {
  Context* c = Context::from(context);
  const int error = stock->query_device(c->members[kDefault].real, attr);
  if (error != 0 && !c->members[kDefault].dead) return error;
  if (error != 0) *attr = c->device_attr.orig_attr;
  limit_to(*attr, c->common_attr.orig_attr);
  return 0;
}

int query_port(ibv_context* context, uint8_t port, ibv_port_attr* attr, size_t size) noexcept {
  Context* c = Context::from(context);
  const int error = real_query_port(c->members[kDefault].real, port, attr, size);
  const auto limits = c->port_limits.find(port);
  if (error == 0 && limits != c->port_limits.end()) limit_to(*attr, limits->second);
  if (!is_masking(*c)) return error;
  // The traffic flows on another member, so the port is shown as it was (C9).
  auto it = c->port_attr.find(port);
  if (it == c->port_attr.end()) return error;
  if (error != 0) {
    std::memcpy(attr, &it->second, std::min(size, sizeof it->second));
    limit_to(*attr, limits->second);
  }
  attr->state = it->second.state;
  attr->phys_state = it->second.phys_state;
  return 0;
}

int query_gid(ibv_context* context, uint8_t port, int index, ibv_gid* gid) noexcept {
  Context* c = Context::from(context);
  const int error = stock->query_gid(c->members[kDefault].real, port, index, gid);
  if (error == 0 && wire::Gid::from_verbs(*gid) != wire::Gid{}) return 0;
  // The address is gone; it may come back, and then at another index. A program that uses it sees
  // no change (C9).
  const auto used = group::gid_in_use(*c, port, static_cast<uint32_t>(index));
  if (!used) return error;
  *gid = used->to_verbs();
  return 0;
}

int query_gid_ex(ibv_context* context, uint32_t port, uint32_t index, ibv_gid_entry* entry,
                 uint32_t flags, size_t size) noexcept try {
  Context* c = Context::from(context);
  const int error = stock->query_gid_ex(c->members[kDefault].real, port, index, entry, flags, size);
  if (size < sizeof *entry || is_callers_mistake(error)) return error;
  if (error == 0 && wire::Gid::from_verbs(entry->gid) != wire::Gid{}) {
    c->shown_gids.add(*entry);
    return 0;
  }
  const auto used = group::gid_in_use(*c, port, index);
  const auto shown = used ? c->shown_gids.find(port, index, *used) : std::nullopt;
  if (!shown) return error;
  std::memset(entry, 0, size);
  *entry = *shown;
  return 0;
} catch (const std::bad_alloc&) {
  return ENOMEM;
}

ssize_t query_gid_table(ibv_context* context, ibv_gid_entry* entries, size_t max, uint32_t flags,
                        size_t size) noexcept try {
  Context* c = Context::from(context);
  const ssize_t count =
      stock->query_gid_table(c->members[kDefault].real, entries, max, flags, size);
  // The entries of a younger program are not known.
  if (size != sizeof *entries || is_callers_mistake(static_cast<int>(-count))) return count;
  size_t shown = count < 0 ? 0 : static_cast<size_t>(count);
  for (size_t i = 0; i < shown; i++) c->shown_gids.add(entries[i]);
  for (const group::GidInUse& used : group::gids_in_use(*c)) {
    const auto is_it = [&used](const ibv_gid_entry& entry) {
      return entry.port_num == used.port && entry.gid_index == used.index;
    };
    if (shown == max || std::any_of(entries, entries + shown, is_it)) continue;
    if (const auto entry = c->shown_gids.find(used.port, used.index, used.gid))
      entries[shown++] = *entry;
  }
  return shown == 0 ? count : static_cast<ssize_t>(shown);
} catch (const std::bad_alloc&) {
  return -ENOMEM;
}

int query_pkey(ibv_context* context, uint8_t port, int index, __be16* pkey) noexcept {
  return stock->query_pkey(Context::from(context)->members[kDefault].real, port, index, pkey);
}

int get_pkey_index(ibv_context* context, uint8_t port, __be16 pkey) noexcept {
  return stock->get_pkey_index(Context::from(context)->members[kDefault].real, port, pkey);
}

void install_queries(verbs_context& v) {
  v.query_device_ex = vctx_query_device_ex;
  v.query_port = vctx_query_port;
  v.query_rt_values = vctx_query_rt_values;
  v.context.ops._compat_query_device = query_device;
  v.context.ops._compat_query_port = compat_query_port;
}

}  // namespace shift::ops
