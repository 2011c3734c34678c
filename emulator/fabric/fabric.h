// The fabric: what all processes of all emulated hosts share. One memory-mapped file per fabric
// holds the NICs with their faults and the table of live processes. `cxemu exec`, `cxemu fault` and
// each emulated process (at its start and exit) write it; every engine reads it.
//
// All fields that several processes use are lock-free atomics; every other field is written once,
// before the entry's `used` flag is stored with release order.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "fabric/counters.h"
#include "fabric/event_log.h"
#include "fabric/flap.h"
#include "fabric/qp_directory.h"
#include "fabric/rule.h"
#include "fabric/shape.h"

namespace cxemu {

inline constexpr uint32_t kFabricMagic = 0x55584343;  // "CCXU"
inline constexpr uint32_t kFabricVersion = 5;
inline constexpr int kMaxHosts = 16;
inline constexpr int kMaxNicsPerHost = 8;
inline constexpr int kMaxNics = kMaxHosts * kMaxNicsPerHost;
inline constexpr int kMaxProcesses = 255;  // slot 0 is never used: its QPNs would be 0..65535

// Faults that are switched on and off; several may be on at once. The README of cxemu describes
// them. A healthy packet, work request or completion only checks that this word is zero.
enum FaultBits : uint32_t {
  kLinkDown = 1u << 0,  // port down: nothing in or out, PORT_ERR / PORT_ACTIVE events
  kDead = 1u << 1,      // device fatal: no packet, CQE or command; open contexts stay dead
  kDropData = 1u << 2,  // every request packet through this NIC is dropped, in either direction
  kDropAcks = 1u << 3,  // every response packet (ACK, NAK, READ response) through it is dropped
  kRules = 1u << 4,     // the rule table may hold something
  kFlap = 1u << 5,      // `flap` is valid
  // `gids` was changed. The bit stays set even when the table is as at first again: queue pairs may
  // use an entry that is empty now.
  kGidMoved = 1u << 6,
  kShaped = 1u << 7,  // no fault: the NIC has a rate, see shape.h
  kCut = 1u << 8,     // all NICs of the host have lost their links; a source of kLinkDown
};

// Bits that say how the NIC is, and not what is broken.
inline constexpr uint32_t kLastingBits = kGidMoved | kShaped;

// A FabricNic::command_delay_us that does not end.
inline constexpr uint32_t kCommandsHang = UINT32_MAX;

// Where a NIC sits, as sysfs shows it; see place.h. Text changes only while no process runs on the
// host.
struct NicPlace {
  char pci[16];      // its address; empty: on a bus of its own, see host/sysfs_tree.cc
  char bridges[96];  // addresses of the bridges above it, from the root on, with "/" between them
  char cpus[64];     // the processors of its socket; empty: all
  std::atomic<int32_t> numa;
  std::atomic<uint32_t> speed, width;  // of its link: tenths of GT/s, lanes; 0: the greatest
};

// One NIC. The fabric file owns it. `generation` is stored after `faults` at every change.
struct FabricNic : PortCounters {
  std::atomic<uint32_t> used;
  uint32_t host;     // index in FabricFile::host_name
  uint32_t index;    // N of mlx5_N on its host
  uint32_t ipv4_be;  // its address inside 127.0.0.0/8, network byte order
  uint64_t guid;     // host byte order
  // How much longer commands to its firmware take. This is no bit of `faults`, because packets and
  // completions do not care.
  std::atomic<uint32_t> command_delay_us;
  std::atomic<uint32_t> faults;      // FaultBits; kLinkDown has more sources, see faults_now
  std::atomic<uint32_t> kills;       // counts kills: a context opened before the last one is dead
  std::atomic<uint32_t> gids;        // where the GIDs are that follow its IPv4 address: see gid.h
  std::atomic<uint32_t> capture;     // the capture_session that captures its packets; 0: none
  std::atomic<uint32_t> generation;  // +1 at every change of the above; engines compare it
  FlapSchedule flap;
  std::array<FaultRule, kMaxRules> rules;
  NicShape shape;
  NicPlace place;
};

// How packets travel between the processes of a fabric.
enum FabricWire : uint32_t {
  kWireUnix = 0,  // sockets of the local machine: fast
  kWireUdp = 1,   // RoCEv2, UDP port 4791 of the NICs' addresses
};

struct alignas(64) FabricProcess {
  std::atomic<int32_t> pid;  // 0: free
  std::atomic<uint32_t> host;
  // UDP wire only, in units of packet_cost(): how much was sent to this process, how much of it the
  // process received, and how far apart the two may be (0: unknown).
  std::atomic<uint32_t> wire_room;
  std::atomic<uint64_t> wire_sent, wire_taken;
  std::atomic<uint32_t> capturing;  // see fabric/capture.h
  // When its engine last ran, on CLOCK_MONOTONIC; 0: the engine has nothing to do. See
  // nic/neighbours.h.
  std::atomic<uint64_t> passed_ns;
};

struct FabricFile {
  uint32_t magic, version;
  uint32_t net;   // second byte of every address: 127.<net>.<host + 1>.<nic + 1>
  uint32_t wire;  // FabricWire
  // +1 after every change of any NIC, and the futex that watchers sleep on (change_wait).
  std::atomic<uint32_t> change_count;
  // Where the search for a free process slot starts. Slots, and so QP numbers, are reused as late
  // as possible, because peers of a dead process keep sending to its QPs for a while.
  std::atomic<uint32_t> next_slot;
  std::atomic<uint32_t> host_count;
  // The running packet capture, see fabric/capture.h. `capture_path` is written before the NICs'
  // `capture` fields.
  std::atomic<int32_t> capture_pid;
  std::atomic<uint32_t> capture_session;
  std::atomic<uint64_t> capture_lost;  // packets that could not be written
  char capture_path[512];
  std::atomic<uint32_t> shaping;       // some NIC has, or had, a rate
  std::atomic<uint64_t> machine_rate;  // what one NIC can carry, by `cxemu calibrate`; 0: unknown
  std::atomic<uint32_t> host_off[kMaxHosts];  // switched off, see host_fault.h
  char host_name[kMaxHosts][32];
  FabricNic nic[kMaxNics];  // host * kMaxNicsPerHost + index
  FabricProcess process[kMaxProcesses + 1];
  FabricQp qp[kMaxListedQps];
  EventRing events;
};

// Index in FabricFile::nic.
uint16_t nic_number(const FabricFile&, const FabricNic&);
// nic_name returns "HOST/mlx5_N". nic_by_name finds the NIC of that name, or returns nullptr and a
// one-line *error.
std::string nic_name(const FabricFile&, const FabricNic&);
FabricNic* nic_by_name(FabricFile&, const std::string& name, std::string* error);
// Announces that a NIC changed: +1 on its generation, then on change_count.
void nic_changed(FabricFile&, FabricNic&);
// Ends every Fabric::change_wait.
void fabric_wake(FabricFile&);

static_assert(std::atomic<uint64_t>::is_always_lock_free);

// The NIC with this address, or nullptr. Addresses that it has after GID changes count, too
// (gid.h).
FabricNic* nic_by_address(FabricFile&, uint32_t ipv4_be);

// A mapped fabric: a movable handle that unmaps the file when it is destroyed.
class Fabric {
 public:
  // Opens the fabric file at `path`. Returns an empty handle and fills *error on failure.
  static Fabric open(const std::string& path, std::string* error);
  // Opens the fabric file, or creates it with its folder (used by `cxemu exec`); a file lock
  // serialises this. A new fabric gets a second address byte that no other fabric of this machine
  // has (fabric/net.h).
  static Fabric open_or_create(const std::string& path, std::string* error) {
    return open_or_create(path, kWireUnix, error);
  }
  // `wire` applies only if the fabric is new.
  static Fabric open_or_create(const std::string& path, FabricWire wire, std::string* error);

  Fabric() = default;
  Fabric(Fabric&&) noexcept;
  Fabric& operator=(Fabric&&) noexcept;
  ~Fabric();

  explicit operator bool() const { return file_ != nullptr; }
  FabricFile* operator->() const { return file_; }
  FabricFile& operator*() const { return *file_; }

  FabricNic* nic(int host, int index) const { return &file_->nic[host * kMaxNicsPerHost + index]; }
  FabricNic* nic_by_address(uint32_t ipv4_be) const {
    return cxemu::nic_by_address(*file_, ipv4_be);
  }
  // Index of the host, which is added if it is new and given NICs until it has `nics` of them.
  // Returns -1 when the fabric is full. The file lock serialises calls.
  int host_ensure(const std::string& name, int nics);
  int host_find(const std::string& name) const;
  int host_nics(int host) const;
  // Takes a process slot (1..kMaxProcesses) for this process; slots of dead processes are
  // reclaimed.
  int process_join(int host);
  void process_leave(int slot);
  // Number of live processes on a host (-1: on all hosts).
  int process_count(int host) const;

  // Sleeps until change_count differs from `seen` or `until_ns` has passed (CLOCK_MONOTONIC;
  // UINT64_MAX: no limit). It may return early.
  void change_wait(uint32_t seen, uint64_t until_ns = UINT64_MAX) const;

 private:
  static Fabric map(int fd, const std::string& path, std::string* error);

  FabricFile* file_ = nullptr;
  std::string path_;
};

}  // namespace cxemu
