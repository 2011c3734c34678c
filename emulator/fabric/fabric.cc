// The shared fabric file: creation, mapping, hosts, process slots, change notification.
#include "fabric/fabric.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <utility>

#include "fabric/gid.h"
#include "fabric/net.h"
#include "fabric/paths.h"
#include "fabric/reclaim.h"

namespace cxemu {
namespace {

constexpr const char* kClaimsDir = "/tmp";
constexpr long kIdleSeconds = 60;

std::string errno_text(const std::string& what) {
  return what + ": " + strerror(errno);
}

// Held while a fabric is created or gets a new host. The kernel releases it if the holder dies.
class FileLock {
 public:
  explicit FileLock(int fd) : fd_(fd) {
    while (flock(fd_, LOCK_EX) != 0 && errno == EINTR) {
    }
  }
  ~FileLock() { flock(fd_, LOCK_UN); }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int fd_;
};

bool process_alive(int32_t pid) {
  return kill(pid, 0) == 0 || errno == EPERM;
}

void nic_init(FabricNic* nic, uint32_t net, uint32_t host, uint32_t index) {
  nic->host = host;
  nic->index = index;
  nic->ipv4_be = htonl(127u << 24 | net << 16 | (host + 1) << 8 | (index + 1));
  nic->guid = 0x0c42a10300000000ull | net << 16 | (host + 1) << 8 | (index + 1);
  nic->used.store(1, std::memory_order_release);
}

}  // namespace

Fabric::Fabric(Fabric&& other) noexcept
    : file_(std::exchange(other.file_, nullptr)), path_(std::move(other.path_)) {}

Fabric& Fabric::operator=(Fabric&& other) noexcept {
  std::swap(file_, other.file_);
  std::swap(path_, other.path_);
  return *this;
}

Fabric::~Fabric() {
  if (file_ != nullptr) munmap(file_, sizeof *file_);
}

Fabric Fabric::map(int fd, const std::string& path, std::string* error) {
  void* memory = mmap(nullptr, sizeof(FabricFile), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) {
    *error = errno_text(path);
    return {};
  }
  Fabric fabric;
  fabric.file_ = static_cast<FabricFile*>(memory);
  fabric.path_ = path;
  return fabric;
}

Fabric Fabric::open(const std::string& path, std::string* error) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) {
    *error = errno_text(path);
    return {};
  }
  Fabric fabric;
  struct stat st;
  if (fstat(fd, &st) != 0 || st.st_size != sizeof(FabricFile))
    *error = path + ": not a fabric of this version of cxemu; 'cxemu clean' removes it";
  else
    fabric = map(fd, path, error);
  ::close(fd);
  if (fabric && (fabric->magic != kFabricMagic || fabric->version != kFabricVersion)) {
    *error = path + ": not a fabric of this version of cxemu; 'cxemu clean' removes it";
    return {};
  }
  return fabric;
}

Fabric Fabric::open_or_create(const std::string& path, FabricWire wire, std::string* error) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos || !private_dir_make(path.substr(0, slash), error)) {
    if (error->empty()) *error = path + ": not a full path";
    return {};
  }
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) {
    *error = errno_text(path);
    return {};
  }
  {
    FileLock lock(fd);
    futimens(fd, nullptr);  // marks the fabric as in use: see reclaim.h
    uint32_t magic = 0;
    const bool made = pread(fd, &magic, sizeof magic, 0) == sizeof magic && magic != 0;
    if (!made) {
      // `magic` is stored last: if a creator dies half-way, the next one creates the file anew.
      uint32_t net = net_claim(kClaimsDir, path, error);
      if (net == 0 && idle_fabrics_remove(kClaimsDir, kIdleSeconds) > 0)
        net = net_claim(kClaimsDir, path, error);
      Fabric fabric;
      if (net != 0 && ftruncate(fd, 0) == 0 && ftruncate(fd, sizeof(FabricFile)) == 0)
        fabric = map(fd, path, error);
      if (!fabric) {
        if (error->empty()) *error = errno_text(path);
        ::close(fd);
        return {};
      }
      fabric->net = net;
      fabric->wire = wire;
      fabric->version = kFabricVersion;
      std::atomic_thread_fence(std::memory_order_release);
      fabric->magic = kFabricMagic;
    }
  }
  ::close(fd);
  return open(path, error);
}

FabricNic* nic_by_address(FabricFile& fabric, uint32_t ipv4_be) {
  // The address says which NIC it can be: 127.NET.HOST+1.NIC+1, plus a multiple of kMaxNicsPerHost.
  const uint32_t address = ntohl(ipv4_be);
  const uint32_t host = (address >> 8 & 0xff) - 1;
  const uint32_t index = ((address & 0xff) - 1) % kMaxNicsPerHost;
  if ((address & 0xff) == 0 || (address & 0xff) > kMaxNicsPerHost * kGidAddresses) return nullptr;
  if (address >> 16 != (127u << 8 | fabric.net) || host >= kMaxHosts) return nullptr;
  FabricNic& found = fabric.nic[host * kMaxNicsPerHost + index];
  return found.used.load(std::memory_order_acquire) != 0 ? &found : nullptr;
}

int Fabric::host_find(const std::string& name) const {
  const uint32_t count = file_->host_count.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < count && i < kMaxHosts; ++i)
    if (name == file_->host_name[i]) return static_cast<int>(i);
  return -1;
}

int Fabric::host_nics(int host) const {
  int count = 0;
  while (count < kMaxNicsPerHost && nic(host, count)->used.load(std::memory_order_acquire) != 0)
    ++count;
  return count;
}

int Fabric::host_ensure(const std::string& name, int nics) {
  if (!name_valid(name) || nics < 1 || nics > kMaxNicsPerHost) return -1;
  const int fd = ::open(path_.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return -1;
  int host;
  {
    FileLock lock(fd);
    host = host_find(name);
    const bool is_new = host < 0;
    if (is_new) host = static_cast<int>(file_->host_count.load(std::memory_order_relaxed));
    if (host < kMaxHosts) {
      for (int i = is_new ? 0 : host_nics(host); i < nics; ++i)
        nic_init(nic(host, i), file_->net, static_cast<uint32_t>(host), static_cast<uint32_t>(i));
      if (is_new) {
        memcpy(file_->host_name[host], name.c_str(), name.size() + 1);
        file_->host_count.store(static_cast<uint32_t>(host) + 1, std::memory_order_release);
      }
    } else {
      host = -1;
    }
  }
  ::close(fd);
  return host;
}

int Fabric::process_join(int host) {
  const int32_t self = getpid();
  const uint32_t first = file_->next_slot.load(std::memory_order_relaxed);
  for (uint32_t i = 0; i < kMaxProcesses; ++i) {
    const uint32_t slot = 1 + (first + i) % kMaxProcesses;
    FabricProcess& entry = file_->process[slot];
    int32_t owner = entry.pid.load(std::memory_order_acquire);
    if (owner != 0 && process_alive(owner)) continue;
    if (!entry.pid.compare_exchange_strong(owner, self, std::memory_order_acq_rel)) continue;
    entry.passed_ns.store(0, std::memory_order_relaxed);
    entry.host.store(static_cast<uint32_t>(host), std::memory_order_release);
    file_->next_slot.store(slot % kMaxProcesses, std::memory_order_relaxed);
    return static_cast<int>(slot);
  }
  return -1;
}

void Fabric::process_leave(int slot) {
  int32_t self = getpid();
  file_->process[slot].pid.compare_exchange_strong(self, 0, std::memory_order_acq_rel);
}

int Fabric::process_count(int host) const {
  int count = 0;
  for (const FabricProcess& entry : file_->process) {
    const int32_t pid = entry.pid.load(std::memory_order_acquire);
    if (pid != 0 && process_alive(pid) &&
        (host < 0 || entry.host.load(std::memory_order_acquire) == static_cast<uint32_t>(host)))
      ++count;
  }
  return count;
}

void Fabric::change_wait(uint32_t seen, uint64_t until_ns) const {
  const timespec until = {static_cast<time_t>(until_ns / 1'000'000'000),
                          static_cast<long>(until_ns % 1'000'000'000)};
  // The bitset form takes an absolute time on CLOCK_MONOTONIC.
  syscall(SYS_futex, &file_->change_count, FUTEX_WAIT_BITSET, seen,
          until_ns == UINT64_MAX ? nullptr : &until, nullptr, FUTEX_BITSET_MATCH_ANY);
}

}  // namespace cxemu
