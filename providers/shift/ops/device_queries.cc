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
#include "ops/deputy.h"
#include "ops/entry.h"
#include "ops/open_contexts.h"
#include "ops/tables.h"

namespace shift::ops {
namespace {

using group::Context;
using group::kDefault;

constexpr uint8_t kLinkUp = 5;  // of ibv_port_attr::phys_state

// A deputy for the default NIC says nothing of it.
bool is_deputy(const Context& context) {
  return context.members[kDefault].is_deputy;
}

int real_query_port(const Context& context, uint8_t port, ibv_port_attr* attr, size_t size) {
  ibv_context* real = context.members[kDefault].real;
  return is_deputy(context) ? EIO : verbs_get_ctx(real)->query_port(real, port, attr, size);
}

bool is_masking(Context& context) {
  std::lock_guard lock(context.mutex);
  return std::any_of(context.groups.begin(), context.groups.end(),
                     [](const group::Group* group) { return group->life.path.off_default.load(); });
}

// Whether the default's port is shown as it is in health: the traffic flows on another member
// (C9), or would, as there are no QPs that only this NIC serves (C10).
bool shows_health(Context& context) {
  return is_masking(context) ||
         (group::is_backed(context) && context.stock_qps == 0 && !context_has_unprotected(context));
}

// Whether a healthy NIC has an empty place there in its GID table, while a dead one refuses to say.
// Some programs read the table place by place, and give up at an error.
bool is_empty_in_health(const Context& context, uint32_t port, uint32_t index) {
  const auto known = context.port_attr.find(static_cast<uint8_t>(port));
  return context.members[kDefault].dead && group::is_backed(context) &&
         known != context.port_attr.end() &&
         index < static_cast<uint32_t>(known->second.gid_tbl_len);
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
  const int error =
      is_deputy(*c) ? EIO : real->query_device_ex(c->members[kDefault].real, input, attr, size);
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
  const int error = is_deputy(*c) ? EIO : stock->query_device(c->members[kDefault].real, attr);
  if (error != 0 && !c->members[kDefault].dead) return error;
  if (error != 0) *attr = c->device_attr.orig_attr;
  limit_to(*attr, c->common_attr.orig_attr);
  return 0;
}

int query_port(ibv_context* context, uint8_t port, ibv_port_attr* attr, size_t size) noexcept {
  Context* c = Context::from(context);
  const int error = real_query_port(*c, port, attr, size);
  const auto limits = c->port_limits.find(port);
  if (error == 0 && limits != c->port_limits.end()) limit_to(*attr, limits->second);
  const bool is_up = error == 0 && attr->state == IBV_PORT_ACTIVE;
  if (is_up || !shows_health(*c)) return error;
  auto it = c->port_attr.find(port);
  if (it == c->port_attr.end()) return error;
  std::memcpy(attr, &it->second, std::min(size, sizeof it->second));
  limit_to(*attr, limits->second);
  attr->state = IBV_PORT_ACTIVE;
  attr->phys_state = kLinkUp;
  return 0;
}

int query_gid(ibv_context* context, uint8_t port, int index, ibv_gid* gid) noexcept try {
  Context* c = Context::from(context);
  int error = EIO;
  if (!is_deputy(*c)) {
    error = stock->query_gid(c->members[kDefault].real, port, index, gid);
    if (error == 0 && wire::Gid::from_verbs(*gid) != wire::Gid{}) return 0;
  }
  // The address is gone; it may come back, and then at another index. A program that uses it sees
  // no change (C9).
  if (const auto used = group::gid_in_use(*c, port, static_cast<uint32_t>(index))) {
    *gid = used->to_verbs();
    return 0;
  }
  const auto shown = group::shown_gid(*c, port, static_cast<uint32_t>(index));
  if (!shown && !is_empty_in_health(*c, port, static_cast<uint32_t>(index))) return error;
  *gid = shown ? shown->gid : ibv_gid{};
  return 0;
} catch (const std::bad_alloc&) {
  return ENOMEM;
}

int query_gid_ex(ibv_context* context, uint32_t port, uint32_t index, ibv_gid_entry* entry,
                 uint32_t flags, size_t size) noexcept try {
  Context* c = Context::from(context);
  int error = EIO;
  if (!is_deputy(*c)) {
    error = stock->query_gid_ex(c->members[kDefault].real, port, index, entry, flags, size);
    if (size < sizeof *entry || is_callers_mistake(error)) return error;
    if (error == 0 && wire::Gid::from_verbs(entry->gid) != wire::Gid{}) {
      c->shown_gids.add(*entry);
      return 0;
    }
  }
  const auto shown = size < sizeof *entry ? std::nullopt : group::shown_gid(*c, port, index);
  if (!shown) return error != 0 && is_empty_in_health(*c, port, index) ? ENODATA : error;
  std::memset(entry, 0, size);
  *entry = *shown;
  return 0;
} catch (const std::bad_alloc&) {
  return ENOMEM;
}

ssize_t query_gid_table(ibv_context* context, ibv_gid_entry* entries, size_t max, uint32_t flags,
                        size_t size) noexcept try {
  Context* c = Context::from(context);
  ssize_t count = -EIO;
  if (!is_deputy(*c)) {
    count = stock->query_gid_table(c->members[kDefault].real, entries, max, flags, size);
    // The entries of a younger program are not known.
    if (size != sizeof *entries || is_callers_mistake(static_cast<int>(-count))) return count;
  }
  if (size != sizeof *entries) return count;
  size_t shown = count < 0 ? 0 : static_cast<size_t>(count);
  for (size_t i = 0; i < shown; i++) c->shown_gids.add(entries[i]);
  const auto show = [&](uint32_t port, uint32_t index) {
    const auto is_it = [&](const ibv_gid_entry& entry) {
      return entry.port_num == port && entry.gid_index == index;
    };
    if (shown == max || std::any_of(entries, entries + shown, is_it)) return;
    if (const auto entry = group::shown_gid(*c, port, index)) entries[shown++] = *entry;
  };
  for (const group::GidInUse& used : group::gids_in_use(*c)) show(used.port, used.index);
  if (group::is_backed(*c))
    for (const ibv_gid_entry& entry : c->remembered_gids) show(entry.port_num, entry.gid_index);
  return shown == 0 ? count : static_cast<ssize_t>(shown);
} catch (const std::bad_alloc&) {
  return -ENOMEM;
}

// RoCE has the same partitions on all NICs.
int query_pkey(ibv_context* context, uint8_t port, int index, __be16* pkey) noexcept {
  const Home at = home(*Context::from(context));
  return at.real != nullptr ? stock->query_pkey(at.real, port, index, pkey) : -1;
}

int get_pkey_index(ibv_context* context, uint8_t port, __be16 pkey) noexcept {
  const Home at = home(*Context::from(context));
  return at.real != nullptr ? stock->get_pkey_index(at.real, port, pkey) : -1;
}

void install_queries(verbs_context& v) {
  v.query_device_ex = vctx_query_device_ex;
  v.query_port = vctx_query_port;
  v.query_rt_values = vctx_query_rt_values;
  v.context.ops._compat_query_device = query_device;
  v.context.ops._compat_query_port = compat_query_port;
}

}  // namespace shift::ops
