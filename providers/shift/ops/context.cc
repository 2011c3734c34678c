// Opening and closing a virtual device, its function tables, and its events.
#include <endian.h>

#include <algorithm>
#include <ctime>
#include <map>
#include <memory>
#include <optional>
#include <random>

#include "group/command_threads.h"
#include "group/port.h"
#include "ops/capabilities.h"
#include "ops/deputy.h"
#include "ops/entry.h"
#include "ops/nic_facts.h"
#include "ops/nic_memory.h"
#include "ops/nic_open.h"
#include "ops/open_contexts.h"
#include "ops/tables.h"
#include "util/config.h"
#include "util/log.h"

namespace shift::ops {
namespace {

using group::Context;
using group::Device;
using group::kDefault;

void fill_tables(Context* c) {
  verbs_context& v = c->verbs;
  v.sz = sizeof v;
  v.create_qp_ex = create_qp_ex;
  v.create_cq_ex = create_cq_ex;
  v.modify_cq = modify_cq;
  v.alloc_parent_domain = alloc_parent_domain;
  v.reg_dm_mr = reg_dm_mr;
  v.alloc_null_mr = alloc_null_mr;
  v.advise_mr = advise_mr;
  v.modify_qp_rate_limit = modify_qp_rate_limit;
  install_stock_objects(v);
  install_queries(v);
  ibv_context& context = v.context;
  context.device = &c->device->dev;
  context.cmd_fd = c->members[kDefault].real->cmd_fd;
  context.num_comp_vectors = c->members[kDefault].real->num_comp_vectors;
  context.abi_compat = __VERBS_ABI_IS_EXTENDED;
  pthread_mutex_init(&context.mutex, nullptr);
  ibv_context_ops& ops = context.ops;
  ops.alloc_mw = alloc_mw;
  ops.bind_mw = bind_mw;
  ops.dealloc_mw = dealloc_mw;
  ops.poll_cq = poll_cq;
  ops.req_notify_cq = req_notify_cq;
  const bool is_counted = config().mode != Mode::kRelaxed;
  const WorkRingTable* const rings = work_rings();
  const bool is_noted = rings != nullptr && rings->knows(c->members[kDefault].real->device);
  if (is_counted) {
    ops.post_send = is_noted ? post_send_noted_counted : post_send_counted;
  } else {
    ops.post_send = is_noted ? post_send_noted : post_send;
  }
  ops.post_recv = is_noted ? post_recv_noted : post_recv;
  ops.post_srq_recv = post_srq_recv;
}

// What the healthy NIC says of itself. Nothing: one of its ports is down.
std::optional<NicMemory> said_in_health(const Nic& nic) {
  const bool is_healthy =
      !nic.ports.empty() && std::ranges::all_of(nic.ports, [](const auto& port) {
        return port.second.state == IBV_PORT_ACTIVE;
      });
  if (!is_healthy) return std::nullopt;
  return NicMemory{time(nullptr), nic.attr, nic.ports, group::gid_entries(nic.real)};
}

// What the default NIC said when it was healthy, now or in an earlier process.
std::optional<NicMemory> memory_of(const ibv_device& device, const Nic& nic) {
  if (!config().born_masked) return std::nullopt;
  auto before = nic_recall(device);
  if (nic.real == nullptr) return before;
  const auto now = said_in_health(nic);
  if (now && nic_is_news(*now, before)) {
    nic_remember(device, *now);
    return now;
  }
  return before ? before : now;
}

// Makes the opened NIC the context's next member. Ports are compared by their numbers. The MTU that
// a port reports while it is down means nothing, so such a port of another member sets no limits.
void take_nic(Context& c, const Nic& nic) {
  constexpr uint32_t kSoftRoce = 0xffffff, kMellanox = 0x2c9;  // the vendor IDs that they report
  const int m = c.member_count++;
  Context::Member& member = c.members[m];
  member.real = nic.real;
  member.watch = nic.watch;
  member.nic = group::command_threads->number_of(c.name(m));
  member.number = be64toh(nic.attr.orig_attr.node_guid);
  member.is_soft_roce = nic.attr.orig_attr.vendor_id == kSoftRoce;
  member.cleans_cqs = nic.attr.orig_attr.vendor_id == kMellanox;
  const auto own = nic.ports.find(group::kPortNumber);
  member.port_down = own == nic.ports.end() || own->second.state != IBV_PORT_ACTIVE;
  if (m == kDefault) {
    c.device_attr = c.common_attr = nic.attr;
    c.port_attr = c.port_limits = nic.ports;
    return;
  }
  limit_to(c.common_attr, nic.attr);
  for (const auto& [port, attr] : nic.ports) {
    const auto limits = c.port_limits.find(port);
    if (limits != c.port_limits.end() && attr.state == IBV_PORT_ACTIVE)
      limit_to(limits->second, attr);
  }
}

// Providers whose queues can be read back are known to do so.
bool do_all_free_by_polling(const Context& c) {
  if (stock->work_rings == nullptr) return false;
  for (int m = 0; m < c.member_count; m++) {
    if (!stock->work_rings->knows(c.members[m].real->device)) return false;
  }
  return true;
}

// Gives each context another seed: processes that run one after the other and get the same QP
// numbers should not draw the same PSNs.
uint64_t psn_seed() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

void close_member(Context& c, int member) {
  if (c.members[member].watch != nullptr)
    (void)stock->destroy_comp_channel(c.members[member].watch);
  (void)stock->close_device(c.members[member].real);
}

// The default NIC cannot be opened. Opens another member's NIC in its place, and describes it as
// the default was. False: there is none.
bool deputy_open(const Device& d, const NicMemory& memory, Nic& nic) {
  for (int i = kDefault + 1; i < d.member_count; i++) {
    const auto other = further_open(d.dev.name, d.real[i]);
    if (other == nullptr) continue;
    nic.real = other->real;
    nic.watch = other->watch;
    nic.attr = memory.attr;
    nic.ports = memory.ports;
    return true;
  }
  return false;
}

// The NIC has died since it was opened, and says nothing of itself. It is described as it was, or
// as the next one of its group is, which is of the same kind.
void describe_dying(const Device& d, const std::optional<NicMemory>& memory, Nic& nic) {
  if (memory) {
    nic.attr = memory->attr;
    return;
  }
  const auto other = further_open(d.dev.name, d.real[kDefault + 1]);
  if (other == nullptr) return;
  nic.attr = other->attr;
  nic.attr.orig_attr.node_guid = htobe64(nic_guid(*d.real[kDefault]));
  nic_close(*other);
}

}  // namespace

ibv_context* open_device(ibv_device* device) noexcept try {
  auto* d = reinterpret_cast<Device*>(device);
  if (d->member_count == 1) return stock->open_device(d->real[kDefault]);
  if (!control::runtime_start()) {
    // Without the job key that it was to have, the layer says nothing, and the program goes on as
    // without the layer.
    if (config().key_file) return stock->open_device(d->real[kDefault]);
    errno = ENOMEM;
    return nullptr;
  }
  Nic first;
  nic_open(first, d->real[kDefault]);
  const auto memory = memory_of(*d->real[kDefault], first);
  const bool is_dead = first.real == nullptr;
  if (is_dead && !(memory && deputy_open(*d, *memory, first))) {
    errno = first.error;
    return nullptr;
  }
  if (first.error != 0 && !is_dead) describe_dying(*d, memory, first);
  auto c = std::make_unique<Context>();
  c->device = d;
  c->capacity = d->capacity;
  take_nic(*c, first);
  if (is_dead) {
    SHIFT_WARN_FEW("%s cannot be opened (errno %d): other NICs carry what is sent there",
                   d->dev.name, first.error);
    Context::Member& member = c->members[kDefault];
    member.is_deputy = true;
    member.dead = member.port_down = true;
  }
  if (memory) c->remembered_gids = memory->gids;
  // What a port says of itself while it is down means little.
  if (memory && c->members[kDefault].port_down) c->port_attr = c->port_limits = memory->ports;
  for (int i = kDefault + 1; i < d->member_count; i++) {
    const auto nic = further_open(d->dev.name, d->real[i]);
    if (nic == nullptr) break;  // a member is known by its place, so none may be skipped
    take_nic(*c, *nic);
  }
  // No other member can be opened, so the application gets the real context, as with stock.
  if (c->member_count == 1) {
    if (first.watch != nullptr) (void)stock->destroy_comp_channel(first.watch);
    if (!is_dead) return first.real;
    (void)stock->close_device(first.real);
    errno = first.error;
    return nullptr;
  }
  if (!c->events.open()) {
    for (int member = 0; member < c->member_count; member++) close_member(*c, member);
    errno = ENOMEM;
    return nullptr;
  }
  c->psn_draws = psn_seed();
  c->frees_by_polling = do_all_free_by_polling(*c);
  fill_tables(c.get());
  c->verbs.context.async_fd = c->events.fd();
  context_is_open(c.get());
  group::PerMember<bool> ports_up;
  for (int m = 0; m < c->member_count; m++) ports_up[m] = !c->members[m].port_down;
  coordinator().context_add(c.get(), ports_up);
  return c.release()->handle();
} catch (const std::bad_alloc&) {
  errno = ENOMEM;
  return nullptr;
}

int close_device(ibv_context* context) noexcept {
  Context* c = Context::from(context);
  coordinator().context_forget(c);
  context_is_closed(c);
  deputy_close(*c);
  // Each NIC's command thread closes the real context after all that uses it. A NIC that is late
  // does so later.
  for (int member = 0; member < c->member_count; member++) {
    const auto close = [held = group::Held(c), member] { close_member(*held, member); };
    const auto waited = group::on_nic_and_wait(*c, member, close);
    if (waited == group::CommandThreads::Waited::kNever) close();
  }
  group::let_go(c);
  return 0;
}

int get_async_event(ibv_context* context, ibv_async_event* event) {
  return Context::from(context)->events.get(event);
}

// The layer acknowledges a real context's event when it reads the event.
void ack_async_event(ibv_context* context, ibv_async_event* event) noexcept {
  Context::from(context)->events.acknowledge(*event);
}

}  // namespace shift::ops
