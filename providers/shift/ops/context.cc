// Opening and closing a virtual device, its function tables, and its events.
#include <map>
#include <memory>
#include <mutex>
#include <random>

#include "group/command_threads.h"
#include "group/port.h"
#include "ops/capabilities.h"
#include "ops/entry.h"
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
  ops.post_send = config().mode == Mode::kExact ? post_send_exact : post_send;
  ops.post_recv = post_recv;
  ops.post_srq_recv = post_srq_recv;
}

ibv_device_attr_ex attributes_of(ibv_context* real) {
  ibv_device_attr_ex attr{};
  if (verbs_get_ctx(real)->query_device_ex(real, nullptr, &attr, sizeof attr) != 0) {
    attr = {};
    (void)stock->query_device(real, &attr.orig_attr);
  }
  return attr;
}

// What is asked of a NIC when it is opened.
struct Nic {
  ibv_context* real = nullptr;
  int error = 0;  // why it could not be opened
  ibv_comp_channel* watch = nullptr;
  ibv_device_attr_ex attr{};
  std::map<uint8_t, ibv_port_attr> ports;
  std::mutex mutex;
  bool is_late = false;  // nobody waits for it any more; under `mutex`
};

void nic_close(Nic& nic) {
  if (nic.watch != nullptr) (void)stock->destroy_comp_channel(nic.watch);
  if (nic.real != nullptr) (void)stock->close_device(nic.real);
  nic.watch = nullptr;
  nic.real = nullptr;
}

void nic_open(Nic& nic, ibv_device* device) {
  nic.real = stock->open_device(device);
  if (nic.real == nullptr) {
    nic.error = errno;
    return;
  }
  nic.watch = stock->create_comp_channel(nic.real);
  nic.attr = attributes_of(nic.real);
  for (uint8_t port = 1; port <= nic.attr.orig_attr.phys_port_cnt; port++) {
    ibv_port_attr attr{};
    const int error = verbs_get_ctx(nic.real)->query_port(nic.real, port, &attr, sizeof attr);
    if (error == 0) nic.ports[port] = attr;
  }
}

// Opens the NIC of a further member. Its command thread does that, because the application must not
// wait for a NIC that hangs. Null: it cannot be opened, or not in time; a warning says so.
std::shared_ptr<Nic> further_open(const Device& d, int member) {
  ibv_device* device = d.real[member];
  auto nic = std::make_shared<Nic>();
  const auto open = [nic, device] {
    {
      std::lock_guard lock(nic->mutex);
      if (nic->is_late) return;  // the device may be gone
    }
    nic_open(*nic, device);
    std::lock_guard lock(nic->mutex);
    if (nic->is_late) nic_close(*nic);
  };
  const int number = group::command_threads->number_of(device->name);
  using Waited = group::CommandThreads::Waited;
  const Waited waited = group::command_threads->is_late(number)
                            ? Waited::kLate
                            : group::command_threads->run_and_wait(number, open);
  if (waited == Waited::kNever) open();
  std::lock_guard lock(nic->mutex);
  if (nic->real != nullptr) return nic;
  nic->is_late = true;
  if (waited == Waited::kLate) {
    device_lists_keep();  // the call that hangs uses its device
    SHIFT_WARN_FEW("%s: no protection by %s: it does not answer commands", d.dev.name,
                   device->name);
  } else {
    SHIFT_WARN_FEW("%s: no protection by %s: it cannot be opened (errno %d)", d.dev.name,
                   device->name, nic->error);
  }
  return nullptr;
}

// Makes the opened NIC the context's next member. Ports are compared by their numbers. The MTU that
// a port reports while it is down means nothing, so such a port of another member sets no limits.
void take_nic(Context& c, const Nic& nic) {
  constexpr uint32_t kSoftRoce = 0xffffff;  // the vendor ID that Soft-RoCE reports
  const int m = c.member_count++;
  Context::Member& member = c.members[m];
  member.real = nic.real;
  member.watch = nic.watch;
  member.nic = group::command_threads->number_of(c.name(m));
  member.is_soft_roce = nic.attr.orig_attr.vendor_id == kSoftRoce;
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
  if (first.real == nullptr) {
    errno = first.error;
    return nullptr;
  }
  auto c = std::make_unique<Context>();
  c->device = d;
  take_nic(*c, first);
  for (int i = kDefault + 1; i < d->member_count; i++) {
    const auto nic = further_open(*d, i);
    if (nic == nullptr) break;  // a member is known by its place, so none may be skipped
    take_nic(*c, *nic);
  }
  // No other member can be opened, so the application gets the real context, as with stock.
  if (c->member_count == 1) {
    if (first.watch != nullptr) (void)stock->destroy_comp_channel(first.watch);
    return first.real;
  }
  if (!c->events.open()) {
    for (int member = 0; member < c->member_count; member++) close_member(*c, member);
    errno = ENOMEM;
    return nullptr;
  }
  c->psn_draws = psn_seed();
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
