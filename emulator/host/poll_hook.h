// Lets applications that poll drive the NIC: two pollers on two cores would starve its thread.
//
// libibverbs passes the address of its ibv_cq as user handle. Once ibv_create_cq has returned, its
// `context` leads to the operations of the device; we put a poll_cq of our own there, which calls
// the original and, only when that found nothing, runs a pass of the engine and tries again.
#pragma once

#include <cstdint>
#include <vector>

#include "nic/nic.h"

namespace cxemu {

class PollHook {
 public:
  void cq_created(uint64_t user_handle) { pending_.push_back(user_handle); }
  void cq_destroyed(uint64_t user_handle);
  // Before each command of the device file `fd`: hooks the queues that are complete by now.
  void settle(int fd);

  // The engine that polling drives. nullptr: polling only polls.
  static void engine_set(Engine*);
  static Engine* engine_get();

 private:
  std::vector<uint64_t> pending_;  // user handles
};

}  // namespace cxemu
