// libcxemu.so inside one process: the host it runs on, its engine, its open devices.
//
// It is a guest in other programs' processes: nothing happens before the first device is opened
// (apart from mapping the fabric), nothing is destroyed at exit, and a child of fork() forgets its
// devices.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "fabric/fabric.h"
#include "host/device_area.h"
#include "host/fd_table.h"
#include "host/poll_hook.h"
#include "host/tcp_cut.h"
#include "nic/nic.h"
#include "uverbs/context.h"

namespace cxemu {

// One open device file.
struct DeviceFile final : ContextObserver, std::enable_shared_from_this<DeviceFile> {
  void channel_created(int fd) override;
  void cq_created(uint64_t user_handle) override;
  void cq_destroyed(uint64_t user_handle) override;

  int fd = -1;     // as opened; there may be duplicates
  int index = -1;  // of the NIC
  std::unique_ptr<DeviceArea> area;
  PollHook poll_hook;
  std::unique_ptr<Context> context;  // destroyed first: it still calls the observer
};

class Guest {
 public:
  // The process's guest, or nullptr when it runs on no emulated host.
  static Guest* get();
  // Called once, by the library's constructor.
  static void start();

  const std::string& sysfs_root() const { return sysfs_root_; }
  FdTable& fds() { return fds_; }
  TcpCut& tcp() { return tcp_; }

  // Returns nullptr if the host has no such NIC.
  const FabricNic* nic(int index) const;
  bool device_exists(int index) const { return nic(index) != nullptr; }
  // Returns a new descriptor, or -1 with errno. `flags` as for open().
  int device_open(int index, int flags);
  // The device behind a descriptor, in a child of fork() also the parent's; empty when the
  // descriptor no longer is a device.
  std::shared_ptr<DeviceFile> device_find(int fd);
  // `copy` now refers to the same file as `fd`.
  void device_duplicated(int fd, int copy);
  // Called before the descriptor is really closed.
  void fd_closing(int fd);
  // Starts the thread that reacts to faults, unless it runs already.
  void watcher_ensure();

 private:
  friend struct DeviceFile;

  Guest(Fabric fabric, int host, std::string sysfs_root);
  Engine* engine_ensure();
  void watch();
  uint64_t flaps_next_ns() const;
  static void fork_prepare();
  static void fork_parent();
  static void fork_child();

  Fabric fabric_;
  const int host_;
  const std::string sysfs_root_;
  FdTable fds_;
  TcpCut tcp_;

  // Guards the members below. It is taken with the engine's lock held, never the other way round.
  std::mutex mutex_;
  Engine* engine_ = nullptr;  // never destroyed: its thread serves until the process ends
  bool watching_ = false;
  std::unordered_map<int, std::shared_ptr<DeviceFile>> devices_;
  std::unordered_map<int, std::weak_ptr<DeviceFile>> channels_;
};

}  // namespace cxemu
