// Several senders, one receiver, and what must have happened to each message.
#include "courier.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>

#include "campaign_flow.h"
#include "fabric/gid.h"

namespace cxemu::test {

namespace {

constexpr uint32_t kLines = 3;
constexpr uint32_t kQkey = 0x22222222;
constexpr uint32_t kDomain = 3;
constexpr uint32_t kGrh = 40;
constexpr uint32_t kQueueDomain = 7;  // the protection domain of shared receive queues
constexpr uint32_t kSlot = 16 << 10, kSlots = 64;
constexpr uint32_t kQueueEntries = 32;
constexpr uint8_t kPoison = 0xee;
constexpr uint64_t kCourierPatienceNs = 2'000'000'000;

// The beginning of every message, from which its content follows.
struct Label {
  uint32_t line, number, size, salt;
};

std::vector<uint8_t> message_make(const Label& label) {
  std::vector<uint8_t> bytes(label.size);
  uint32_t state = label.salt ^ label.line << 24 ^ label.number;
  for (uint8_t& byte : bytes) {
    state = state * 1664525 + 1013904223;
    byte = static_cast<uint8_t>(state >> 24);
  }
  memcpy(bytes.data(), &label, sizeof label);
  return bytes;
}

// Memory divided into pieces of equal size.
class Slots {
 public:
  Slots(Nic& nic, uint32_t pd)
      : mr(nic, size_t{kSlot} * kSlots, IBV_ACCESS_LOCAL_WRITE, pd), free_(kSlots) {
    std::fill(mr.bytes.begin(), mr.bytes.end(), kPoison);
    for (uint32_t i = 0; i < kSlots; i++) free_[i] = i;
  }
  bool any() const { return !free_.empty(); }
  uint32_t take() {
    const uint32_t slot = free_.front();
    free_.pop_front();
    return slot;
  }
  uint8_t* at(uint32_t slot) { return mr.bytes.data() + size_t{slot} * kSlot; }
  // Poisons the slot, so that any later read or write of it is detected.
  void give_back(uint32_t slot) {
    std::fill_n(at(slot), kSlot, kPoison);
    free_.push_back(slot);
  }
  Sge sge(uint32_t slot, uint32_t size) const { return mr.sge(size_t{slot} * kSlot, size); }

  TestMr mr;

 private:
  std::deque<uint32_t> free_;
};

bool is_datagram(CourierService service) {
  return service == CourierService::kUd || service == CourierService::kUdShared;
}
bool is_shared(CourierService service) {
  return service != CourierService::kUc && service != CourierService::kUd;
}
bool is_reliable(CourierService service) {
  return service == CourierService::kRcShared || service == CourierService::kXrc;
}

QpOptions sender_options(CourierService service) {
  switch (service) {
    case CourierService::kRcShared:
      return {};
    case CourierService::kXrc:
      return {.type = IBV_QPT_XRC_SEND};
    default:
      return {.type = is_datagram(service) ? IBV_QPT_UD : IBV_QPT_UC};
  }
}

QpOptions receiver_options(CourierService service, Srq* srq) {
  QpOptions options = sender_options(service);
  if (service == CourierService::kXrc) return {.type = IBV_QPT_XRC_RECV, .xrcd = kDomain};
  if (is_shared(service)) options.srq = srq;
  return options;
}

class Courier {
 public:
  Courier(CourierService service, uint64_t seed, uint32_t messages);
  void run();
  CourierReport report() const;

 private:
  struct Sent {
    uint32_t slot;
    uint16_t index;
  };
  // A sender, its peer, and what is in flight between them.
  struct Line {
    std::unique_ptr<TestQp> a, b;
    std::deque<Sent> sending;
    std::deque<uint32_t> receiving;  // slots of b's own queue
    uint16_t receives_done = 0;
    uint32_t next = 0;  // number of the next message
    int64_t last = -1;  // number of the newest message received
    uint64_t received = 0;
  };
  // A shared receive queue, with the slot of each posted entry.
  struct Queue {
    std::unique_ptr<TestSrq> srq;
    std::vector<int> slot = std::vector<int>(kQueueEntries, -1);
    uint32_t posted = 0;
  };

  void wire_spoil();
  void send(Line& line, uint32_t index);
  void receives_post();
  void sent_take();
  void received_take();
  int receive_slot(Line& line, const Completion& one);
  void judge(Line& line, const Completion& one, const uint8_t* at);
  void losses_judge();
  Line* line_of(const Completion& one, bool at_a);
  bool all_sent() const;

  const CourierService service_;
  const uint32_t per_line_;
  const bool orderly_;
  Judge judge_;
  Random random_;
  Rig rig_;
  TestCq a_cq_{*rig_.a.nic, rig_.a.events}, b_cq_{*rig_.b.nic, rig_.b.events};
  Slots outgoing_{*rig_.a.nic, 1};
  Slots incoming_;
  std::vector<Queue> queues_;
  std::vector<Line> lines_;
  uint64_t progress_ns_;
};

Courier::Courier(CourierService service, uint64_t seed, uint32_t messages)
    : service_(service),
      per_line_((messages + kLines - 1) / kLines),
      orderly_(seed % 2 == 1),
      random_(seed),
      rig_(random_()),
      incoming_(*rig_.b.nic, is_shared(service) ? kQueueDomain : 1),
      progress_ns_(rig_.clock.now_ns()) {
  const bool xrc = service == CourierService::kXrc;
  for (uint32_t i = 0; is_shared(service) && i < (xrc ? 2 : 1); i++) {
    const SrqOptions options = {.wqe_count = kQueueEntries,
                                .pd = kQueueDomain,
                                .cq = xrc ? b_cq_.cq : nullptr,
                                .xrcd = xrc ? kDomain : 0};
    queues_.push_back({std::make_unique<TestSrq>(*rig_.b.nic, rig_.b.events, options)});
  }
  for (uint32_t i = 0; i < kLines; i++) {
    Line& line = lines_.emplace_back();
    line.a =
        std::make_unique<TestQp>(*rig_.a.nic, rig_.a.events, a_cq_, a_cq_, sender_options(service));
    line.b = std::make_unique<TestQp>(
        *rig_.b.nic, rig_.b.events, b_cq_, b_cq_,
        receiver_options(service, queues_.empty() ? nullptr : queues_[0].srq->srq));
    for (TestQp* qp : {line.a.get(), line.b.get()}) {
      qp->attr.path_mtu = static_cast<ibv_mtu>(IBV_MTU_256 + random_() % 5);
      qp->attr.timeout = 7;
    }
    line.b->attr.path_mtu = line.a->attr.path_mtu;
    if (is_datagram(service)) {
      Rig::start_datagrams(*line.a, kQkey);
      Rig::start_datagrams(*line.b, kQkey);
    } else {
      rig_.connect(*line.a, *line.b);
    }
  }
  wire_spoil();
}

void Courier::wire_spoil() {
  const auto chance = [&](double worst) {
    return worst * (0.2 + 0.8 * static_cast<double>(random_() % 1000) / 1000);
  };
  rig_.net.loss = chance(0.01);
  rig_.net.corruption = chance(0.005);
  if (orderly_) return;
  rig_.net.duplication = chance(0.03);
  rig_.net.reordering = chance(0.03);
  rig_.net.delaying = chance(0.01);
}

void Courier::send(Line& line, uint32_t index) {
  if (line.next == per_line_ || line.sending.size() == 16 || !outgoing_.any()) return;
  const uint32_t most = is_datagram(service_) ? kMaxMtu : kSlot - kGrh;
  const bool small = random_() % 2 == 0;
  const Label label = {
      index, line.next++,
      static_cast<uint32_t>(sizeof(Label) + random_() % ((small ? 300 : most) - sizeof(Label) + 1)),
      static_cast<uint32_t>(random_())};
  const uint32_t slot = outgoing_.take();
  const std::vector<uint8_t> bytes = message_make(label);
  std::copy(bytes.begin(), bytes.end(), outgoing_.at(slot));
  SendWr wr = {
      .opcode = kWqeSendImm, .sges = {outgoing_.sge(slot, label.size)}, .imm_be = label.number};
  if (is_datagram(service_)) {
    wr.dest_qpn = line.b->number();
    wr.qkey = kQkey;
    nic_gid(rig_.b.fabric_nic, wr.sgid_index, wr.gid.raw);
  }
  if (service_ == CourierService::kXrc) wr.srqn = queues_[random_() % 2].srq->number();
  line.sending.push_back({slot, line.a->post_send(wr)});
}

void Courier::receives_post() {
  for (Queue& queue : queues_) {
    while (queue.posted < kQueueEntries / 2 && incoming_.any()) {
      const uint32_t slot = incoming_.take();
      queue.slot[queue.srq->post({incoming_.sge(slot, kSlot)})] = static_cast<int>(slot);
      queue.posted++;
    }
  }
  for (Line& line : lines_) {
    while (!is_shared(service_) && line.receiving.size() < 16 && incoming_.any()) {
      line.receiving.push_back(incoming_.take());
      line.b->post_recv({incoming_.sge(line.receiving.back(), kSlot)});
    }
  }
}

Courier::Line* Courier::line_of(const Completion& one, bool at_a) {
  const auto found = std::find_if(lines_.begin(), lines_.end(), [&](const Line& line) {
    return (at_a ? line.a : line.b)->number() == one.qpn;
  });
  judge_.check(found != lines_.end(), "completion of QP ", one.qpn);
  return found == lines_.end() ? nullptr : &*found;
}

void Courier::sent_take() {
  for (const Completion& one : a_cq_.drain()) {
    Line* line = line_of(one, true);
    if (line == nullptr) return;
    if (!judge_.check(one.opcode == kCqeRequester, "a SEND failed: ", int{one.syndrome}) ||
        !judge_.check(!line->sending.empty() && line->sending.front().index == one.wqe_counter,
                      "completion of WQE ", one.wqe_counter, " out of turn"))
      return;
    progress_ns_ = rig_.clock.now_ns();
    outgoing_.give_back(line->sending.front().slot);
    line->sending.pop_front();
  }
}

// The slot of the receive that completed; -1 if no such receive is posted.
int Courier::receive_slot(Line& line, const Completion& one) {
  if (!is_shared(service_)) {
    if (line.receiving.empty() || one.wqe_counter != line.receives_done++) return -1;
    const auto slot = static_cast<int>(line.receiving.front());
    line.receiving.pop_front();
    return slot;
  }
  // An XRC completion does not name its queue; it is the queue whose memory has the message.
  for (Queue& queue : queues_) {
    if (one.wqe_counter >= kQueueEntries) return -1;
    int& slot = queue.slot[one.wqe_counter];
    if (slot < 0) continue;
    Label label;
    memcpy(&label, incoming_.at(static_cast<uint32_t>(slot)) + (one.grh ? kGrh : 0), sizeof label);
    if (queues_.size() > 1 && (label.number != one.imm_be || label.size != one.byte_count))
      continue;
    queue.srq->free(one.wqe_counter);
    queue.posted--;
    return std::exchange(slot, -1);
  }
  return -1;
}

void Courier::judge(Line& line, const Completion& one, const uint8_t* at) {
  const auto index = static_cast<uint32_t>(&line - lines_.data());
  const uint32_t front = is_datagram(service_) ? kGrh : 0;
  judge_.check(one.grh == (front != 0), "a network header in the wrong place");
  Label label;
  memcpy(&label, at + front, sizeof label);
  const std::string where =
      "message " + std::to_string(one.imm_be) + " of line " + std::to_string(index) + ": ";
  if (!judge_.check(label.line == index && label.number == one.imm_be, where,
                    "another one's data") ||
      !judge_.check(one.byte_count == front + label.size && label.size <= kSlot, where,
                    one.byte_count, " bytes"))
    return;
  const std::vector<uint8_t> wanted = message_make(label);
  judge_.check(memcmp(at + front, wanted.data(), wanted.size()) == 0, where, "wrong bytes");
  judge_.check(label.number < line.next, where, "was never sent");
  const int64_t number = label.number;
  if (is_reliable(service_)) judge_.check(number == line.last + 1, where, "out of turn");
  if (orderly_) judge_.check(number > line.last, where, "twice, or late");
  line.last = std::max(line.last, number);
  line.received++;
}

void Courier::received_take() {
  for (const Completion& one : b_cq_.drain()) {
    Line* line = line_of(one, false);
    if (line == nullptr ||
        !judge_.check(one.opcode == kCqeRecvSendImm, "a receive failed: ", int{one.syndrome}))
      return;
    const int slot = receive_slot(*line, one);
    if (!judge_.check(slot >= 0, "completion of receive ", one.wqe_counter, " out of turn")) return;
    progress_ns_ = rig_.clock.now_ns();
    judge(*line, one, incoming_.at(static_cast<uint32_t>(slot)));
    incoming_.give_back(static_cast<uint32_t>(slot));
  }
}

bool Courier::all_sent() const {
  return std::all_of(lines_.begin(), lines_.end(), [&](const Line& line) {
    return line.next == per_line_ && line.sending.empty();
  });
}

// A message may be lost only with one of its packets, or because no receive was posted.
void Courier::losses_judge() {
  uint64_t sent = 0, received = 0;
  for (const Line& line : lines_) {
    sent += line.next;
    received += line.received;
  }
  if (is_reliable(service_)) {
    judge_.check(received == sent, sent - received, " messages never came");
    return;
  }
  if (!orderly_) return;
  const uint64_t lost = rig_.net.carried - rig_.net.delivered + rig_.net.corrupted +
                        rig_.b.fabric_nic.get(HwCounter::kOutOfBuffer);
  judge_.check(sent - received <= lost, sent - received, " messages lost, but only ", lost,
               " reasons for it");
}

void Courier::run() {
  constexpr uint64_t kStepNs = 5'000;
  while (judge_.ok() && !all_sent()) {
    for (uint32_t i = 0; i < kLines; i++) {
      for (uint64_t n = random_() % 4; n > 0; n--) send(lines_[i], i);
    }
    // Now and then no receives are posted for a while.
    if ((rig_.clock.now_ns() >> 17) % 8 != 0) receives_post();
    rig_.step(kStepNs);
    received_take();
    sent_take();
    judge_.check(rig_.clock.now_ns() - progress_ns_ < kCourierPatienceNs, "no progress any more");
  }
  for (int i = 0; judge_.ok() && (i < 200 || rig_.net.in_flight() > 0); i++) {
    receives_post();
    rig_.step(kStepNs);
    received_take();
  }
  if (judge_.ok()) losses_judge();
}

CourierReport Courier::report() const {
  CourierReport report = {.problem = judge_.problem()};
  for (const Line& line : lines_) {
    report.sent += line.next;
    report.received += line.received;
  }
  const auto [most, least] = std::minmax(rig_.net.carried, rig_.net.delivered);
  report.spoiled = least - most + rig_.net.corrupted;
  return report;
}

}  // namespace

const char* courier_name(CourierService service) {
  static constexpr const char* kNames[] = {"RC, shared receives", "XRC", "UC",
                                           "UC, shared receives", "UD",  "UD, shared receives"};
  return kNames[static_cast<int>(service)];
}

CourierReport courier_run(CourierService service, uint64_t seed, uint32_t messages) {
  Courier courier(service, seed, messages);
  courier.run();
  return courier.report();
}

}  // namespace cxemu::test
