// Entries of the QP table: taking and returning them, and reclaiming those that dead processes
// left.
#include "fabric/qp_directory.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>

#include "fabric/fabric.h"

namespace cxemu {

FabricQp* qp_entry_take(FabricFile& fabric, uint32_t number) {
  const int32_t self = getpid();
  const uint32_t first = (number >> 16) * 61 + number;  // processes start at different places
  int32_t alive = 0;  // who was last found alive: a process has many entries in a row
  for (const bool sweep : {false, true}) {
    for (uint32_t i = 0; i < kMaxListedQps; ++i) {
      FabricQp& entry = fabric.qp[(first + i) % kMaxListedQps];
      int32_t owner = entry.pid.load(std::memory_order_acquire);
      if (owner != 0 && (!sweep || owner == alive)) continue;
      if (owner != 0 && (kill(owner, 0) == 0 || errno != ESRCH)) {
        alive = owner;
        continue;
      }
      if (!entry.pid.compare_exchange_strong(owner, -1, std::memory_order_acq_rel)) continue;
      entry.number.store(number, std::memory_order_relaxed);
      for (auto* field : {&entry.state, &entry.peer_number, &entry.peer_ipv4_be, &entry.sq_psn,
                          &entry.rq_psn, &entry.syndrome})
        field->store(0, std::memory_order_relaxed);
      entry.pid.store(self, std::memory_order_release);
      return &entry;
    }
  }
  return nullptr;
}

void qp_entry_release(FabricQp* entry) {
  if (entry != nullptr) entry->pid.store(0, std::memory_order_release);
}

}  // namespace cxemu
