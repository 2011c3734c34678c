// Lets polling applications drive the NIC: two pollers on two cores would starve its thread.
//
// libibverbs passes the address of its ibv_cq as the user handle. Once ibv_create_cq has returned,
// the `context` in it leads to the operations of the device. We replace poll_cq there by a function
// that calls the original and, only when that found nothing, runs a pass of the engine and tries
// again.
#pragma once

#include <cstdint>
#include <vector>

#include "nic/nic.h"

namespace cxemu {

class PollHook {
 public:
  void cq_created(uint64_t user_handle) { pending_.push_back(user_handle); }
  void cq_destroyed(uint64_t user_handle);
  // Called before each command of the device file `fd`: hooks the queues that are complete by now.
  void settle(int fd);

  // The engine that polling drives. nullptr: polling drives no engine.
  static void engine_set(Engine*);
  static Engine* engine_get();

 private:
  std::vector<uint64_t> pending_;  // user handles
};

}  // namespace cxemu
