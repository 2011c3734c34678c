// Which file descriptors of the process are ours. Every write() and close() of the application
// reads the table without a lock, so that other descriptors cost one load.
#pragma once

#include <atomic>
#include <cstdint>

namespace cxemu {

enum class FdKind : uint8_t {
  kOther,    // not ours
  kDevice,   // an open /dev/infiniband/uverbsN
  kChannel,  // a completion channel
  kSocket,   // a socket whose own or peer address belongs to a NIC of the fabric
  kLost,     // a device that the parent of this process had open when it forked
};

inline constexpr int kFdMax = 65536;

class FdTable {
 public:
  FdKind get(int fd) const {
    return fd >= 0 && fd < kFdMax ? kind_[fd].load(std::memory_order_acquire) : FdKind::kOther;
  }
  void set(int fd, FdKind kind) { kind_[fd].store(kind, std::memory_order_release); }

 private:
  std::atomic<FdKind> kind_[kFdMax];
};

}  // namespace cxemu
