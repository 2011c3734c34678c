// Opening the NICs of a device group.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

namespace shift::ops {

// What is asked of a NIC when it is opened.
struct Nic {
  ibv_context* real = nullptr;
  int error = 0;  // why it could not be opened, or says nothing of itself
  ibv_comp_channel* watch = nullptr;
  ibv_device_attr_ex attr{};
  std::map<uint8_t, ibv_port_attr> ports;
  std::mutex mutex;
  bool is_late = false;  // nobody waits for it any more; under `mutex`
};

void nic_open(Nic& nic, ibv_device* device);
void nic_close(Nic& nic);

// Opens a NIC other than the one that the application wants, for the group of that name. Its
// command thread does that, because the application must not wait for a NIC that hangs. Null: it
// cannot be opened, or not in time; a warning says so.
std::shared_ptr<Nic> further_open(const char* group_name, ibv_device* device);

}  // namespace shift::ops
