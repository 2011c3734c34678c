// The guest: start, devices, descriptors, fork.
#include "host/guest.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>

#include "fabric/paths.h"
#include "host/real.h"

namespace cxemu {
namespace {

Real<int(int)> g_guest_close("close");

Guest* g_guest;  // set once by the constructor, never destroyed

void warn(const std::string& text) {
  const std::string line = "cxemu: " + text + "\n";
  if (::write(STDERR_FILENO, line.data(), line.size()) < 0) return;
}

}  // namespace

void DeviceFile::channel_created(int channel_fd) {
  Guest* guest = Guest::get();
  if (channel_fd >= kFdMax) return;
  std::lock_guard lock(guest->mutex_);
  guest->channels_[channel_fd] = weak_from_this();
  guest->fds_.set(channel_fd, FdKind::kChannel);
}

void DeviceFile::cq_created(uint64_t user_handle) {
  poll_hook.cq_created(user_handle);
}

void DeviceFile::cq_destroyed(uint64_t user_handle) {
  poll_hook.cq_destroyed(user_handle);
}

Guest::Guest(Fabric fabric, int host, std::string sysfs_root)
    : fabric_(std::move(fabric)),
      host_(host),
      sysfs_root_(std::move(sysfs_root)),
      tcp_(&fabric_, host, &fds_) {}

Guest* Guest::get() {
  return g_guest;
}

void Guest::start() {
  const char* path = getenv("CXEMU_FABRIC_FILE");
  const char* host = getenv("CXEMU_HOST");
  if (path == nullptr || host == nullptr) return;
  std::string error;
  Fabric fabric = Fabric::open(path, &error);
  if (!fabric) return warn(error);
  const int index = fabric.host_find(host);
  if (index < 0) return warn(std::string(host) + ": no such host in " + path);
  const std::string folder(path, strrchr(path, '/') - path);
  g_guest = new Guest(std::move(fabric), index, host_sysfs_dir(folder, host));
  pthread_atfork(fork_prepare, fork_parent, fork_child);
}

const FabricNic* Guest::nic(int index) const {
  if (index < 0 || index >= kMaxNicsPerHost) return nullptr;
  const FabricNic* found = fabric_.nic(host_, index);
  return found->used.load(std::memory_order_acquire) != 0 ? found : nullptr;
}

Engine* Guest::engine_ensure() {
  std::lock_guard lock(mutex_);
  if (engine_ != nullptr) return engine_;
  const int slot = fabric_.process_join(host_);
  if (slot < 0) {
    errno = EUSERS;
    return nullptr;
  }
  engine_ = Engine::start(fabric_, slot).release();
  if (engine_ == nullptr) {
    fabric_.process_leave(slot);
    errno = ENOMEM;
    return nullptr;
  }
  PollHook::engine_set(engine_);
  return engine_;
}

int Guest::device_open(int index, int flags) {
  Engine* engine = engine_ensure();
  if (engine == nullptr) return -1;
  auto device = std::make_shared<DeviceFile>();
  int fd = -1;
  device->area = DeviceArea::create(flags, &fd);
  if (!device->area) return -1;
  device->fd = fd;
  device->index = index;
  if (fd < kFdMax)
    device->context = Context::open(*engine, fabric_, fabric_.nic(host_, index), device.get(),
                                    device->area->base());
  if (!device->context) {
    g_guest_close(fd);
    errno = fd < kFdMax ? EIO : EMFILE;
    return -1;
  }
  {
    std::lock_guard lock(mutex_);
    devices_[fd] = device;
    fds_.set(fd, FdKind::kDevice);
  }
  watcher_ensure();
  return fd;
}

std::shared_ptr<DeviceFile> Guest::device_find(int fd) {
  std::shared_ptr<DeviceFile> gone;
  std::lock_guard lock(mutex_);
  const auto it = devices_.find(fd);
  if (it == devices_.end()) return {};
  if (it->second->area->is_behind(fd)) return it->second;
  gone = std::move(it->second);  // destroyed without the mutex: that takes the engine's lock
  devices_.erase(it);
  fds_.set(fd, FdKind::kOther);
  return {};
}

void Guest::device_duplicated(int fd, int copy) {
  if (copy >= kFdMax) return;
  std::lock_guard lock(mutex_);
  const auto it = devices_.find(fd);
  if (it == devices_.end()) return;
  devices_[copy] = it->second;
  fds_.set(copy, fds_.get(fd));
}

void Guest::fd_closing(int fd) {
  const FdKind kind = fds_.get(fd);
  if (kind == FdKind::kOther) return;
  if (kind == FdKind::kSocket) return tcp_.closing(fd);
  std::shared_ptr<DeviceFile> device;
  {
    std::lock_guard lock(mutex_);
    fds_.set(fd, FdKind::kOther);
    if (kind == FdKind::kDevice || kind == FdKind::kLost) {
      if (const auto it = devices_.find(fd); it != devices_.end()) {
        device = std::move(it->second);
        devices_.erase(it);
      }
    } else if (const auto it = channels_.find(fd); it != channels_.end()) {
      device = it->second.lock();
      channels_.erase(it);
    }
  }
  if (kind == FdKind::kChannel && device) {
    std::lock_guard lock(device->context->engine().lock());
    device->context->channel_closed(fd);
  }
  // Here, outside of our lock, a device's last reference may go.
}

void Guest::watch() {
  for (;;) {
    const uint32_t seen = fabric_->change_count.load(std::memory_order_acquire);
    tcp_.refresh();
    Engine* engine;
    {
      std::lock_guard lock(mutex_);
      engine = engine_;
    }
    if (engine != nullptr) engine->wake();
    fabric_.change_wait(seen, flaps_next_ns());
  }
}

// When a flapping link of any NIC changes next, since TCP has to follow.
uint64_t Guest::flaps_next_ns() const {
  const uint64_t now_ns = monotonic_ns();
  uint64_t next_ns = UINT64_MAX;
  for (const FabricNic& nic : fabric_->nic)
    if (nic.used.load(std::memory_order_acquire) != 0)
      next_ns = std::min(next_ns, flap_next_ns(nic, now_ns));
  return next_ns;
}

void Guest::watcher_ensure() {
  std::lock_guard lock(mutex_);
  if (watching_) return;
  // The application's signal handlers must not run in a thread that it does not know about.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  const auto body = [](void* guest) -> void* {
    static_cast<Guest*>(guest)->watch();
    return nullptr;
  };
  watching_ = pthread_create(&thread, nullptr, body, this) == 0;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (watching_) pthread_detach(thread);
}

void Guest::fork_prepare() {
  g_guest->tcp_.lock().lock();
  g_guest->mutex_.lock();
}

void Guest::fork_parent() {
  g_guest->mutex_.unlock();
  g_guest->tcp_.lock().unlock();
}

void Guest::fork_child() {
  Guest* guest = g_guest;
  // The devices remain the parent's, and the child can do little with them. Nothing is destroyed,
  // since that would need the parent's engine. Devices that the child opens itself use an engine of
  // its own.
  for (auto& [fd, device] : guest->devices_) {
    guest->fds_.set(fd, FdKind::kLost);
    device->context->orphan();
    new std::shared_ptr<DeviceFile>(device);  // kept for ever on purpose
  }
  for (auto& [fd, device] : guest->channels_) guest->fds_.set(fd, FdKind::kOther);
  guest->channels_.clear();
  guest->engine_ = nullptr;
  guest->watching_ = false;
  PollHook::engine_set(nullptr);
  guest->mutex_.unlock();
  guest->tcp_.lock().unlock();
}

}  // namespace cxemu
