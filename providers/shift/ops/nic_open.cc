#include "ops/nic_open.h"

#include <cerrno>

#include "group/command_threads.h"
#include "ops/entry.h"
#include "ops/open_contexts.h"
#include "util/log.h"

namespace shift::ops {

namespace {

// Returns 0 or an error number.
int attributes_read(ibv_context* real, ibv_device_attr_ex& attr) {
  if (verbs_get_ctx(real)->query_device_ex(real, nullptr, &attr, sizeof attr) == 0) return 0;
  attr = {};
  return stock->query_device(real, &attr.orig_attr);
}

}  // namespace

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
  nic.error = attributes_read(nic.real, nic.attr);
  for (uint8_t port = 1; port <= nic.attr.orig_attr.phys_port_cnt; port++) {
    ibv_port_attr attr{};
    const int error = verbs_get_ctx(nic.real)->query_port(nic.real, port, &attr, sizeof attr);
    if (error == 0) nic.ports[port] = attr;
  }
}

std::shared_ptr<Nic> further_open(const char* group_name, ibv_device* device) {
  auto nic = std::make_shared<Nic>();
  const auto open = [nic, device] {
    {
      std::lock_guard lock(nic->mutex);
      if (nic->is_late) return;  // the device may be gone
    }
    nic_open(*nic, device);
    std::lock_guard lock(nic->mutex);
    // A NIC that dies just now has room for nothing, and so would the group.
    if (nic->is_late || nic->error != 0) nic_close(*nic);
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
    SHIFT_WARN_FEW("%s: no protection by %s: it does not answer commands", group_name,
                   device->name);
  } else {
    SHIFT_WARN_FEW("%s: no protection by %s: it cannot be opened (errno %d)", group_name,
                   device->name, nic->error);
  }
  return nullptr;
}

}  // namespace shift::ops
