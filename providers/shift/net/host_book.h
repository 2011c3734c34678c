// Which addresses belong to one host. A peer is looked for at the address in its GID; when that
// address does not answer, because its NIC or link is down, the peer may be reached at another
// address of its host. This book says at which. It is not asked as long as the first address works.
//
// It knows hosts by a map that the operator gives, and by what was seen. A host is seen when a
// process that has proved to own a QP at one address has come from, or answered at, another one,
// too. Used on the control loop only.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "util/host_map.h"
#include "wire/names.h"

namespace shift::net {

// What was seen of one host, as it is kept for later processes.
struct SeenHost {
  wire::Gid gid;
  std::vector<uint32_t> addresses_be;  // without the address in the GID
  int64_t seen_s = 0;                  // when, in seconds since 1970
};

// Keeps what was seen, also for other processes of this user on this host.
class HostMemory {
 public:
  virtual ~HostMemory() = default;
  // Valid until the next call. Strangers have it called, so without `fresh` it may be a moment old.
  virtual const std::vector<SeenHost>& recall(bool fresh) = 0;
  virtual void remember(const std::vector<SeenHost>& hosts) = 0;
};

class HostBook {
 public:
  static constexpr size_t kAddressesMax = 8;  // of one host
  static constexpr size_t kHostsMax = 2048;   // that are remembered
  // An address that was not seen for so long may be another host's by now.
  static constexpr int64_t kBelievedFor_s = 7 * 86400;

  using Clock = std::function<int64_t()>;  // seconds since 1970

  HostBook(HostMap map, std::unique_ptr<HostMemory> memory, Clock clock);

  // Further addresses of the host that has the GID: those of the operator's map first. Network byte
  // order; kAddressesMax at most, and never the one in the GID.
  std::vector<uint32_t> others(const wire::Gid& gid);

  // The process that owns a QP of that GID was seen at these addresses. True: keep() has something
  // to write.
  bool see(const wire::Gid& gid, const std::vector<uint32_t>& addresses_be);
  // Writes what was seen to the memory. The addresses belong to no other host from here on. It
  // takes some milliseconds when many hosts are remembered.
  void keep();

 private:
  bool is_unwritten(const wire::Gid& gid) const;

  const HostMap map_;
  const std::unique_ptr<HostMemory> memory_;
  const Clock clock_;
  // What this process has seen, so that the memory is not asked for each connection; and what of it
  // is not in the memory yet.
  struct Told {
    std::vector<uint32_t> addresses_be;
    int64_t at_s;
  };
  std::map<wire::Gid, Told> told_;
  std::vector<wire::Gid> unwritten_;
};

}  // namespace shift::net
