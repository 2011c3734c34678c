// The entries of the default NIC's GID table that the application was shown. While a QP uses one of
// them, the application sees no change of it (C9), also when the NIC has lost the address or is
// dead.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "wire/names.h"

namespace shift::group {

// Thread-safe. It holds at most one entry for each place in the NIC's own table.
class ShownGids {
 public:
  // Throws std::bad_alloc.
  void add(const ibv_gid_entry& entry) {
    std::lock_guard lock(mutex_);
    entries_.insert_or_assign({entry.port_num, entry.gid_index}, entry);
  }
  // The entry at that place, if it was shown with this GID.
  std::optional<ibv_gid_entry> find(uint32_t port, uint32_t index, const wire::Gid& gid) const {
    std::lock_guard lock(mutex_);
    const auto found = entries_.find({port, index});
    if (found == entries_.end() || wire::Gid::from_verbs(found->second.gid) != gid)
      return std::nullopt;
    return found->second;
  }

 private:
  mutable std::mutex mutex_;  // nothing else is locked under it
  std::map<std::pair<uint32_t, uint32_t>, ibv_gid_entry> entries_;
};

}  // namespace shift::group
