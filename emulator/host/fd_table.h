// Which file descriptors of the process are ours. Read without locks on every write() and close()
// of the application, so that descriptors of others cost one load.
#pragma once

#include <atomic>
#include <cstdint>

namespace cxemu {

enum class FdKind : uint8_t {
  kOther,    // not ours
  kDevice,   // an open /dev/infiniband/uverbsN
  kChannel,  // a completion channel
  kSocket,   // a socket whose own or peer address is one of a fabric NIC
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
