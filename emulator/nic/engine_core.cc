// One pass of the engine.
#include "nic/engine_core.h"

#include <algorithm>

#include "fabric/gid.h"
#include "nic/planted.h"
#include "nic/qp_publish.h"

namespace cxemu {

namespace {

constexpr uint32_t kIndexCount = 1 << 16;
constexpr uint64_t kPublishNs = 100'000'000;

// Whether the NIC has this address for the QP: a connection is reached through its own entry of the
// table.
bool addressed(const Qp& qp, const Packet& packet, uint32_t dst_ipv4_be) {
  const FabricNic& nic = qp.nic.fabric();
  if ((nic.faults.load(std::memory_order_relaxed) & kGidMoved) == 0) [[likely]]
    return dst_ipv4_be == nic.ipv4_be;
  if (qp.service == Service::kUd) return ud_addressed(qp, packet, dst_ipv4_be);
  return dst_ipv4_be == gid_ipv4_be(nic, qp.attr.ah_attr.grh.sgid_index);
}

// Whether nothing happens with the QP before a packet, a command or its doorbell. The services
// without acknowledgements, and errors, are rare, and looked at always.
bool nothing_goes_on(const Qp& qp) {
  const Requester& r = qp.requester;
  if (!qp.reliable() || qp.state == IBV_QPS_ERR || !responder_idle(qp)) return false;
  return !qp.sends() || (!r.outstanding() && r.rnr_until_ns == 0 && r.error == kSyndromeNone &&
                         r.entry_first == r.entry_end && !qp.drained_notify);
}

}  // namespace

void EngineCore::Watched::settle() {
  doorbell_seen = doorbell != nullptr ? __atomic_load_n(doorbell, __ATOMIC_ACQUIRE) : 0;
  const bool started =
      !qp->sends() || static_cast<uint16_t>(be32toh(doorbell_seen)) == qp->requester.ring_next;
  quiet = started && nothing_goes_on(*qp);
}

EngineCore::EngineCore(FabricFile& fabric, int slot, Clock& clock, Carrier& carrier,
                       const EngineTuning& tuning)
    : fabric_(fabric),
      slot_(slot),
      clock_(clock),
      carrier_(carrier),
      tuning_(tuning),
      capture_(fabric, slot),
      wire_(fabric, carrier, capture_),
      table_(kIndexCount),
      clock_last_ns_(clock.now_ns()) {}

EngineCore::~EngineCore() = default;

std::unique_ptr<Nic> EngineCore::nic_open(FabricNic* fabric_nic, EventSink* port_sink) {
  if (gone_ || (fabric_nic->faults.load(std::memory_order_acquire) & kDead) != 0) return nullptr;
  return std::make_unique<NicModel>(*this, *fabric_nic, port_sink);
}

void EngineCore::nic_add(NicModel* nic) {
  nics_.push_back(nic);
  carrier_.address_open(nic->fabric().ipv4_be);
}

void EngineCore::address_change(uint32_t before_be, uint32_t after_be) {
  if (before_be != 0) carrier_.address_close(before_be);
  if (after_be != 0) carrier_.address_open(after_be);
}

void EngineCore::nic_remove(NicModel* nic) {
  std::erase(nics_, nic);
  carrier_.address_close(nic->fabric().ipv4_be);
}

Qp* EngineCore::qp_add(NicModel& nic, const QpConfig& config) {
  // Numbers go round: a released number is used again only after all others.
  for (uint32_t tries = 0; tries < kIndexCount; tries++) {
    const uint32_t index = next_index_;
    next_index_ = (next_index_ + 1) % kIndexCount;
    if (index == 0 || table_[index]) continue;
    const uint32_t number = static_cast<uint32_t>(slot_) << 16 | index;
    table_[index] = std::make_unique<Qp>(nic, config, number);
    Qp* qp = table_[index].get();
    qp->entry = qp_entry_take(fabric_, number);
    if (qp->entry != nullptr) {
      qp->entry->nic.store(nic_number(fabric_, nic.fabric()), std::memory_order_relaxed);
      qp->entry->type.store(config.type, std::memory_order_relaxed);
    }
    qp->watched_index = watched_.size();
    watched_.push_back({.qp = qp,
                        .doorbell = config.sq_wqe_count != 0 ? &config.db[1] : nullptr,
                        .doorbell_seen = 0,
                        .quiet = false});
    return qp;
  }
  return nullptr;
}

void EngineCore::qp_remove(Qp* qp) {
  if (!gone_) qp_entry_release(qp->entry);  // a forked child has none
  watched_[qp->watched_index] = watched_.back();
  watched_[qp->watched_index].qp->watched_index = qp->watched_index;
  watched_.pop_back();
  table_[qp->number & 0xffff].reset();
}

void EngineCore::time_advance() {
  const uint64_t clock_ns = clock_.now_ns();
  if (!held_) now_ns_ += std::min(clock_ns - clock_last_ns_, tuning_.step_max_ns);
  clock_last_ns_ = clock_ns;
}

bool EngineCore::pass() {
  if (gone_) return false;
  time_advance();
  for (NicModel* nic : nics_) {
    nic->fabric_check(clock_last_ns_);
    nic->held_writes().release_due(clock_last_ns_);
  }

  wire_.pass_begin(clock_last_ns_);
  const Transport transport = {wire_, tuning_.transport, now_ns_, clock_last_ns_};
  transport_ = &transport;
  const Carrier::Received received = carrier_.receive(*this, tuning_.receive_bytes);
  bool any = received.any | held_deliver();
  // An answer that has arrived must be processed before the requester looks for missing answers.
  any |= qps_run(transport, received.drained);
  transport_ = nullptr;
  const bool held = wire_.delayed_send(clock_last_ns_);
  wire_.pass_end();
  if (clock_last_ns_ - published_ns_ >= kPublishNs) qps_publish();
  capture_.flush();
  congested_ = carrier_.flush() || (held && wire_.delayed_due_ns() <= clock_last_ns_);

  for (NicModel* nic : nics_) {
    if (nic->dead()) continue;
    for (const auto& cq : nic->cqs()) {
      if (cq->has_channel()) any |= cq->event_check();
    }
  }
  return any;
}

bool EngineCore::qps_run(const Transport& transport, bool timers) {
  bool any = false;
  const size_t count = watched_.size();
  if (++start_ >= count) start_ = 0;
  for (size_t i = 0, at = start_; i < count; i++) {
    Watched& watched = watched_[at];
    if (++at == count) at = 0;
    if ((watched.quiet && !watched.rang()) || watched.qp->nic.dead()) continue;
    any |= qp_run(*watched.qp, transport, timers);
    watched.settle();
  }
  return any;
}

bool EngineCore::qp_run(Qp& qp, const Transport& transport, bool timers) {
  bool any = false;
  wire_.source_set({.nic = qp.nic.fabric(),
                    .qpn = qp.number,
                    .gid_index = qp.attr.ah_attr.grh.sgid_index,
                    .service_class = shape_class(qp.attr.ah_attr.sl),
                    .dst_ipv4_be = qp.remote_ipv4_be});
  if (!qp.reliable()) {
    if (qp.sends()) any |= unreliable_run(qp, transport, tuning_.qp_send_bytes);
    if (qp.in_error()) any |= qp_flush(qp, transport, tuning_.flush_max);
    return any;
  }
  if (!responder_idle(qp)) any |= responder_run(qp, transport, tuning_.qp_send_bytes);
  if (qp.sends()) {
    if (timers) any |= requester_timer(qp, transport);
    any |= requester_run(qp, transport, tuning_.qp_send_bytes);
  }
  if (qp.state == IBV_QPS_ERR) any |= qp_flush(qp, transport, tuning_.flush_max);
  return any;
}

// The packet's QP cannot be trusted, so only the NIC can count it.
void EngineCore::corrupt_arrived(uint32_t src_ipv4_be, uint32_t dst_ipv4_be, const uint8_t* packet,
                                 size_t size) {
  for (NicModel* nic : nics_) {
    FabricNic& fabric_nic = nic->fabric();
    if (fabric_nic.ipv4_be != address_original_be(dst_ipv4_be)) continue;
    if ((faults_now(fabric_nic, clock_last_ns_) & (kLinkDown | kDead)) == 0) {
      fabric_nic.icrc_errors.fetch_add(1, std::memory_order_relaxed);
      capture_.record(fabric_nic, CaptureDirection::kReceived, src_ipv4_be, dst_ipv4_be, packet,
                      size, true);
    }
    return;
  }
}

void EngineCore::frame_arrived(uint32_t src_ipv4_be, uint32_t dst_ipv4_be, const uint8_t* data,
                               size_t size, bool corrupt) {
  if (corrupt && !CXEMU_PLANT(damaged_accepted))
    return corrupt_arrived(src_ipv4_be, dst_ipv4_be, data, size);
  Packet packet = {.opcode = Operation::kAcknowledge};
  if (!packet_decode(data, size, &packet)) return;
  Qp* qp = qp_of(packet, dst_ipv4_be);
  if (qp == nullptr) return;
  const Wire::Arrival arrival = {src_ipv4_be, dst_ipv4_be, data, size};
  const int service_class = shape_class(qp->attr.ah_attr.sl);
  if (!wire_.admits(qp->nic.fabric(), packet, arrival, service_class, clock_last_ns_)) return;
  capture_.record(qp->nic.fabric(), CaptureDirection::kReceived, src_ipv4_be, dst_ipv4_be, data,
                  size, false);
  packet_dispatch(*qp, packet, src_ipv4_be);
}

Qp* EngineCore::qp_of(const Packet& packet, uint32_t dst_ipv4_be) {
  if (static_cast<int>(packet.dest_qpn >> 16) != slot_) return nullptr;
  Qp* qp = table_[packet.dest_qpn & 0xffff].get();
  return qp != nullptr &&
                 (addressed(*qp, packet, dst_ipv4_be) || CXEMU_PLANT(other_port_accepted)) &&
                 !qp->nic.dead()
             ? qp
             : nullptr;
}

void EngineCore::packet_dispatch(Qp& qp, const Packet& packet, uint32_t src_ipv4_be) {
  if (qp.nic.dead()) return;
  if (!CXEMU_PLANT(packet_wakes_nobody)) qp_wake(qp);
  if (qp.service != packet.service && !CXEMU_PLANT(service_unchecked)) return;
  if (qp.service == Service::kUd) {
    ud_datagram(qp, packet, src_ipv4_be, *transport_);
    return;
  }
  // A connection takes packets from its peer's address only.
  if (qp.remote_ipv4_be != src_ipv4_be && !CXEMU_PLANT(stranger_accepted)) return;
  if (qp.service == Service::kUc) {
    uc_request(qp, packet, *transport_);
  } else if (opcode_is_response(packet.opcode)) {
    requester_response(qp, packet, *transport_);
  } else if (qp.config.type != IBV_QPT_XRC_SEND) {
    responder_request(qp, packet, *transport_);
  }
}

// Delivers packets that a fault held back on their way in.
bool EngineCore::held_deliver() {
  const std::vector<Wire::Held> due = wire_.arrivals_take(clock_last_ns_);
  for (const Wire::Held& held : due) {
    Packet packet = {.opcode = Operation::kAcknowledge};
    if (!packet_decode(held.packet.data(), held.packet.size(), &packet)) continue;
    Qp* qp = qp_of(packet, held.dst_ipv4_be);
    if (qp == nullptr) continue;
    capture_.record(qp->nic.fabric(), CaptureDirection::kReceived, held.src_ipv4_be,
                    held.dst_ipv4_be, held.packet.data(), held.packet.size(), false);
    packet_dispatch(*qp, packet, held.src_ipv4_be);
  }
  return !due.empty();
}

void EngineCore::qps_publish() {
  published_ns_ = clock_last_ns_;
  for (const Watched& watched : watched_) qp_publish(*watched.qp);
}

uint64_t EngineCore::quiet_ns(uint64_t limit_ns) const {
  // No event tells when a full way has room again.
  constexpr uint64_t kCongestedNs = 20'000;
  if (congested_) limit_ns = std::min(limit_ns, kCongestedNs);
  uint64_t until = UINT64_MAX;
  for (const Watched& watched : watched_) {
    if (watched.quiet) continue;
    until = std::min(until, requester_deadline_ns(*watched.qp, tuning_.transport));
  }
  uint64_t quiet = until == UINT64_MAX ? limit_ns : (until > now_ns_ ? until - now_ns_ : 0);
  uint64_t due = wire_.delayed_due_ns();
  for (NicModel* nic : nics_) due = std::min(due, nic->held_writes().due_ns());
  if (due != UINT64_MAX) quiet = std::min(quiet, due > clock_last_ns_ ? due - clock_last_ns_ : 0);
  return std::min(quiet, limit_ns);
}

bool EngineCore::settled() const {
  const auto idle = [](const Watched& watched) {
    const Qp& qp = *watched.qp;
    if (qp.nic.dead()) return true;
    if (!responder_idle(qp)) return false;
    return !qp.sends() ||
           (!qp.requester.outstanding() && qp.send_producer() == qp.requester.ring_next);
  };
  return !congested_ && std::all_of(watched_.begin(), watched_.end(), idle);
}

bool EngineCore::any_watched() const {
  return std::any_of(watched_.begin(), watched_.end(), [](const Watched& watched) {
    return watched.qp->state != IBV_QPS_RESET && watched.qp->state != IBV_QPS_INIT;
  });
}

}  // namespace cxemu
