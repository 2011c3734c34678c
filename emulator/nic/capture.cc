// Writes packets into the spool.
#include "nic/capture.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "fabric/gid.h"
#include "nic/encapsulation.h"
#include "nic/roce.h"

namespace cxemu {

namespace {

constexpr size_t kBuffer = 256 << 10;
constexpr size_t kRecordMax = sizeof(CaptureRecord) + kEncapsulation + kMaxPacket;

// The hardware address of the NIC that has this address of a fabric (nic_mac needs only the
// address).
void mac_of(uint32_t ipv4_be, uint8_t mac[6]) {
  FabricNic nic = {};
  nic.ipv4_be = address_original_be(ipv4_be);
  nic_mac(nic, mac);
}

uint64_t realtime_ns() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace

void Capture::abandon() {
  // Calls the kernel directly, because an interposed close() may find its lock held after a fork.
  if (fd_ >= 0) syscall(SYS_close, fd_);
  fd_ = -1;
  session_ = 0;
  used_ = buffered_ = 0;
}

void Capture::spool_open(uint32_t session) {
  abandon();
  session_ = session;
  if (!buffer_) buffer_ = std::make_unique_for_overwrite<uint8_t[]>(kBuffer);
  fd_ = static_cast<int>(syscall(SYS_openat, AT_FDCWD, fabric_.capture_path,
                                 O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW));
}

void Capture::add(const FabricNic& nic, CaptureDirection direction, uint32_t src_ipv4_be,
                  uint32_t dst_ipv4_be, const uint8_t* packet, size_t size, bool corrupt) {
  if (size < kBthSize || size > kMaxPacket) return;
  if (used_ > 0 && nic.capture.load() != session_) write_out();
  own_.capturing.store(1);
  const uint32_t session = nic.capture.load();
  if (session != 0 && session != session_) spool_open(session);
  if (session == 0 || fd_ < 0) {
    if (session != 0) fabric_.capture_lost.fetch_add(1, std::memory_order_relaxed);
    if (used_ == 0) own_.capturing.store(0);
    return;
  }
  const Flow flow = {src_ipv4_be, dst_ipv4_be,
                     flow_port(flow_index(src_ipv4_be, dst_ipv4_be, packet))};
  uint8_t src_mac[6], dst_mac[6];
  mac_of(src_ipv4_be, src_mac);
  mac_of(dst_ipv4_be, dst_mac);
  const CaptureRecord record = {.magic = kCaptureMagic,
                                .frame_size = static_cast<uint32_t>(size + kEncapsulation),
                                .time_ns = realtime_ns(),
                                .nic = nic.host * kMaxNicsPerHost + nic.index,
                                .direction = direction,
                                .reserved = 0};
  uint8_t* at = buffer_.get() + used_;
  memcpy(at, &record, sizeof record);
  frame_encode(flow, src_mac, dst_mac, packet, size, corrupt, at + sizeof record);
  used_ += sizeof record + record.frame_size;
  buffered_++;
  if (used_ + kRecordMax > kBuffer) write_out();
}

// One write per batch: the kernel appends it as a whole, so that batches of several processes do
// not mix.
void Capture::write_out() {
  const int32_t owner = fabric_.capture_pid.load(std::memory_order_relaxed);
  if (owner != 0 && kill(owner, 0) != 0 && errno == ESRCH) capture_forget(fabric_);
  if (syscall(SYS_write, fd_, buffer_.get(), used_) != static_cast<long>(used_)) {
    // Probably the disk is full. Half a batch ends the spool, since nothing after it could be read.
    fabric_.capture_lost.fetch_add(buffered_, std::memory_order_relaxed);
    capture_forget(fabric_);
  }
  used_ = buffered_ = 0;
  own_.capturing.store(0);
}

}  // namespace cxemu
