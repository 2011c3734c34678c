// The engine without its thread: what one process's NICs do in one pass. Everything runs with the
// engine's lock held. Time and carrier are parameters, so tests can run it in virtual time over
// their own wire.
#pragma once

#include <memory>
#include <vector>

#include "nic/carrier.h"
#include "nic/clock.h"
#include "nic/nic_model.h"
#include "nic/transport.h"
#include "nic/wire.h"

namespace cxemu {

struct EngineTuning {
  TransportTuning transport;
  // The engine's time advances by at most this per pass: time in which the engine could not run
  // does not make a retransmission timer expire.
  uint64_t step_max_ns = 2'000'000;
  uint32_t qp_send_bytes = 256 << 10;  // per QP and pass
  uint32_t receive_bytes = 1 << 20;    // per pass
  uint32_t flush_max = 512;            // WQEs per QP and pass
};

class EngineCore final : private FrameSink {
 public:
  EngineCore(FabricFile& fabric, int slot, Clock& clock, Carrier& carrier,
             const EngineTuning& tuning = {});
  ~EngineCore();

  std::unique_ptr<Nic> nic_open(FabricNic* fabric_nic, EventSink* port_sink);

  // Returns whether anything was done.
  bool pass();
  // While held, passes take no time: no timer advances.
  void time_hold(bool held) { held_ = held; }
  // How long nothing will happen by itself (no timer is due), at most `limit_ns`.
  uint64_t quiet_ns(uint64_t limit_ns) const;
  // Whether some QP is connected or flushing, so that doorbells may ring at any time.
  bool any_watched() const;
  // Whether nothing is posted, unanswered or unacknowledged on any QP of a live NIC.
  bool settled() const;
  bool any_open() const { return !nics_.empty(); }

  // In a forked child: nothing moves any more.
  void abandon() {
    gone_ = true;
    capture_.abandon();
  }
  bool gone() const { return gone_; }

  // For NicModel.
  FabricFile& fabric() { return fabric_; }
  uint64_t now_ns() const { return now_ns_; }
  uint64_t wall_ns() const { return clock_last_ns_; }
  void nic_add(NicModel* nic);
  void nic_remove(NicModel* nic);
  // A NIC in use now has another address besides its own; 0: none.
  void address_change(uint32_t before_be, uint32_t after_be);
  // Gives the QP a number of this process; returns nullptr when all are taken.
  Qp* qp_add(NicModel& nic, const QpConfig& config);
  void qp_remove(Qp* qp);
  // A packet or a command has changed the QP.
  void qp_wake(const Qp& qp) { watched_[qp.watched_index].quiet = false; }

 private:
  void frame_arrived(uint32_t src_ipv4_be, uint32_t dst_ipv4_be, const uint8_t* packet, size_t size,
                     bool corrupt) override;
  void corrupt_arrived(uint32_t src_ipv4_be, uint32_t dst_ipv4_be, const uint8_t* packet,
                       size_t size);
  // Handles a packet that the faults of its NIC let in.
  void packet_dispatch(Qp& qp, const Packet& packet, uint32_t src_ipv4_be);
  // The QP that a packet is for; nullptr: no QP of this process.
  Qp* qp_of(const Packet& packet, uint32_t dst_ipv4_be);
  bool held_deliver();
  void qps_publish();
  void time_advance();
  bool qps_run(const Transport& transport, bool timers);
  bool qp_run(Qp& qp, const Transport& transport, bool timers);

  // A QP as the passes see it. There may be thousands, most of them idle, and a pass that read all
  // that is known of each would do little else. So it passes over those with which nothing goes on,
  // and whose doorbell has not changed.
  struct Watched {
    Qp* qp;
    const volatile uint32_t* doorbell;  // of its send queue; nullptr: it has none
    uint32_t doorbell_seen;             // as it is in the memory
    bool quiet;

    bool rang() const {
      return doorbell != nullptr && __atomic_load_n(doorbell, __ATOMIC_ACQUIRE) != doorbell_seen;
    }
    void settle();
  };

  FabricFile& fabric_;
  const int slot_;
  Clock& clock_;
  Carrier& carrier_;
  const EngineTuning tuning_;
  Capture capture_;
  Wire wire_;
  std::vector<NicModel*> nics_;
  std::vector<std::unique_ptr<Qp>> table_;  // by the low 16 bits of the number
  std::vector<Watched> watched_;            // those that exist, in no order
  uint32_t next_index_ = 1;
  size_t start_ = 0;  // which QP comes first in the next pass
  uint64_t clock_last_ns_;
  uint64_t published_ns_ = 0;
  uint64_t now_ns_ = 1'000'000'000;       // never 0, which means "no deadline" elsewhere
  const Transport* transport_ = nullptr;  // during pass()
  bool congested_ = false;                // packets wait for room in the carrier
  bool gone_ = false;
  bool held_ = false;
};

}  // namespace cxemu
