// What the NIC model's tests share.
#include "rig.h"

#include <gtest/gtest.h>

#include <cstring>

#include "fabric/gid.h"

namespace cxemu::test {

// ---- MemoryNet

class MemoryNet::Port final : public Carrier {
 public:
  Port(MemoryNet& net, int slot) : net_(net), slot_(slot) {}

  void address_open(uint32_t) override {}
  void address_close(uint32_t) override {}
  uint8_t* reserve(int slot, size_t size) override {
    reserved_ = slot;
    if (slot > 0 && net_.queues_[static_cast<size_t>(slot)].size() >= net_.room) return nullptr;
    buffer_.resize(size);
    return buffer_.data();
  }
  void commit(uint32_t src, uint32_t dst, size_t size, bool corrupt) override {
    net_.send(reserved_,
              {src, dst, {buffer_.begin(), buffer_.begin() + static_cast<long>(size)}, corrupt});
  }
  bool flush() override { return false; }
  Received receive(FrameSink& sink, size_t max_bytes) override {
    net_.delayed_release(static_cast<size_t>(slot_));
    std::deque<Frame>& queue = net_.queues_[static_cast<size_t>(slot_)];
    size_t bytes = 0;
    bool any = false;
    // Packets that are sent to the own process meanwhile wait for the next call.
    for (size_t count = queue.size(); count > 0 && bytes < max_bytes; count--) {
      const Frame frame = std::move(queue.front());
      queue.pop_front();
      bytes += frame.packet.size();
      any = true;
      net_.delivered++;
      net_.corrupted += frame.corrupt ? 1 : 0;
      sink.frame_arrived(frame.src, frame.dst, frame.packet.data(), frame.packet.size(),
                         frame.corrupt);
    }
    return {any, bytes < max_bytes};
  }
  int wait_fd() const override { return -1; }
  void abandon() override {}

 private:
  MemoryNet& net_;
  int slot_;
  int reserved_ = 0;
  std::vector<uint8_t> buffer_;
};

std::unique_ptr<Carrier> MemoryNet::carrier(int slot) {
  return std::make_unique<Port>(*this, slot);
}

bool MemoryNet::chance(double probability) {
  return probability > 0 && std::uniform_real_distribution<>(0, 1)(random_) < probability;
}

void MemoryNet::send(int slot, Frame frame) {
  carried++;
  Packet packet = {.opcode = Operation::kAcknowledge};
  ASSERT_TRUE(packet_decode(frame.packet.data(), frame.packet.size(), &packet));
  int copies = filter ? filter(packet) : 1;
  frame.corrupt |= (damage && damage(packet)) || chance(corruption);
  if (chance(loss)) copies = 0;
  if (copies > 0 && chance(duplication)) copies++;
  std::deque<Frame>& queue = queues_[static_cast<size_t>(slot)];
  for (int i = 0; i < copies; i++) {
    if (chance(delaying)) {
      const auto to = static_cast<size_t>(slot);
      delayed_[to].push_back({calls_[to] + 1 + random_() % 64, frame});
      continue;
    }
    const size_t back = chance(reordering) ? std::min<size_t>(queue.size(), random_() % 8) : 0;
    queue.insert(queue.end() - static_cast<long>(back), frame);
  }
}

void MemoryNet::delayed_release(size_t slot) {
  const uint64_t now = ++calls_[slot];
  std::vector<Delayed>& waiting = delayed_[slot];
  for (size_t i = 0; i < waiting.size();) {
    if (waiting[i].due > now) {
      i++;
      continue;
    }
    queues_[slot].push_back(std::move(waiting[i].frame));
    waiting.erase(waiting.begin() + static_cast<long>(i));
  }
}

size_t MemoryNet::in_flight() const {
  size_t count = 0;
  for (const auto& queue : queues_) count += queue.size();
  for (const auto& waiting : delayed_) count += waiting.size();
  return count;
}

// ---- TestCq

TestCq::TestCq(Nic& nic, EventSink& sink, uint32_t cqe_count, int channel, uint32_t cqe_size)
    : buffer_(size_t{cqe_count} * cqe_size), count_(cqe_count), size_(cqe_size) {
  const CqConfig config = {.buffer = buffer_.data(),
                           .db = db_,
                           .cqe_count = cqe_count,
                           .cqe_size = cqe_size,
                           .user_handle = kUserHandle,
                           .channel_fd = channel,
                           .sink = &sink};
  EXPECT_EQ(nic.cq_create(config, &cq), 0);
}

std::optional<Completion> TestCq::poll() {
  const uint8_t* at = buffer_.data() + size_t{consumer_ & (count_ - 1)} * size_ + size_ - 64;
  CqeLayout cqe;
  const uint8_t owner = __atomic_load_n(at + 63, __ATOMIC_ACQUIRE);
  if (owner >> 4 == kCqeInvalid || (owner & 1) != ((consumer_ & count_) != 0 ? 1 : 0)) return {};
  memcpy(&cqe, at, sizeof cqe);
  consumer_++;
  db_[0] = htobe32(consumer_ & 0xffffff);
  const auto opcode = static_cast<CqeOpcode>(owner >> 4);
  const bool error = opcode == kCqeRequesterError || opcode == kCqeResponderError;
  return Completion{.opcode = opcode,
                    .syndrome = error ? at[55] : uint8_t{0},
                    .vendor = error ? at[54] : uint8_t{0},
                    .wqe_opcode = static_cast<uint8_t>(be32toh(cqe.wqe_opcode_qpn) >> 24),
                    .wqe_counter = be16toh(cqe.wqe_counter),
                    .qpn = be32toh(cqe.wqe_opcode_qpn) & 0xffffff,
                    .uidx = be32toh(cqe.srqn_uidx),
                    .byte_count = be32toh(cqe.byte_count),
                    .imm_be = cqe.imm,
                    .remote_qpn = be32toh(cqe.flags_rqpn) & 0xffffff,
                    .grh = (be32toh(cqe.flags_rqpn) >> 28 & 3) != 0};
}

std::vector<Completion> TestCq::drain() {
  std::vector<Completion> all;
  while (const auto completion = poll()) all.push_back(*completion);
  return all;
}

void TestCq::arm(bool solicited_only) {
  db_[1] = htobe32((arm_sn_ & 3) << 28 | (solicited_only ? 1u << 24 : 0) | (consumer_ & 0xffffff));
}

// ---- TestQp

namespace {
constexpr uint32_t kRecvShift = 6;  // four segments
}

TestQp::TestQp(Nic& own_nic, EventSink& sink, TestCq& send_cq, TestCq& recv_cq,
               const QpOptions& options)
    : nic(own_nic),
      options_(options),
      sq_(size_t{options.sq_blocks} * 64),
      rq_(size_t{options.rq_wqes} << kRecvShift) {
  const bool sends = options.type != IBV_QPT_XRC_RECV;
  const bool receives = sends && options.type != IBV_QPT_XRC_SEND;
  const bool own_ring = receives && options.srq == nullptr;
  const QpConfig config = {.type = options.type,
                           .rq_buffer = rq_.data(),
                           .rq_wqe_count = own_ring ? options.rq_wqes : 0,
                           .rq_wqe_shift = kRecvShift,
                           .sq_buffer = sq_.data(),
                           .sq_wqe_count = sends ? options.sq_blocks : 0,
                           .db = db_,
                           .uidx = kUidx,
                           .user_handle = kUserHandle,
                           .send_cq = sends ? send_cq.cq : nullptr,
                           .recv_cq = receives ? recv_cq.cq : nullptr,
                           .pd = sends ? options.pd : 0,
                           .sq_sig_all = false,
                           .cap = {},
                           .sink = &sink,
                           .srq = options.srq,
                           .xrcd = options.xrcd};
  EXPECT_EQ(nic.qp_create(config, &qp), 0);
  attr.path_mtu = IBV_MTU_1024;
  attr.sq_psn = 0xfffff0;  // wraps soon
  attr.max_rd_atomic = attr.max_dest_rd_atomic = 4;
  attr.min_rnr_timer = 1;
  attr.timeout = 10;
  attr.retry_cnt = 7;
  attr.rnr_retry = 7;
}

uint16_t TestQp::post(const std::vector<uint8_t>& segments, CtrlSegment ctrl, uint8_t opcode) {
  const uint16_t first = sq_next_;
  const auto length = static_cast<uint32_t>(sizeof ctrl + segments.size());
  ctrl.opmod_idx_opcode = htobe32(uint32_t{first} << 8 | opcode);
  ctrl.qpn_ds = htobe32(number() << 8 | length / 16);
  std::vector<uint8_t> wqe(length);
  memcpy(wqe.data(), &ctrl, sizeof ctrl);
  std::copy(segments.begin(), segments.end(), wqe.begin() + sizeof ctrl);
  for (uint32_t i = 0; i < length; i++) {
    sq_[((first % options_.sq_blocks) * 64 + i) % sq_.size()] = wqe[i];
  }
  sq_next_ = static_cast<uint16_t>(first + (length + 63) / 64);
  ring_send(sq_next_);
  return first;
}

namespace {
void append(std::vector<uint8_t>* to, const void* data, size_t size) {
  const auto* bytes = static_cast<const uint8_t*>(data);
  to->insert(to->end(), bytes, bytes + size);
}
}  // namespace

std::vector<uint8_t> TestQp::service_segment(const SendWr& wr) const {
  std::vector<uint8_t> segment;
  if (options_.type == IBV_QPT_UD) {
    AddressVector vector = {};
    vector.qkey = htobe32(wr.qkey);
    vector.dqp = htobe32(1u << 31 | wr.dest_qpn);
    vector.grh_gid_fl = htobe32(static_cast<uint32_t>(wr.sgid_index) << 20 | 0xabcde);
    memcpy(vector.rgid, wr.gid.raw, sizeof vector.rgid);
    append(&segment, &vector, sizeof vector);
  } else if (options_.type == IBV_QPT_XRC_SEND) {
    const XrcSegment xrc = {htobe32(wr.srqn), {}};
    append(&segment, &xrc, sizeof xrc);
  }
  return segment;
}

uint16_t TestQp::post_send(const SendWr& wr) {
  std::vector<uint8_t> segments;
  if (wr.opcode != kWqeNop) segments = service_segment(wr);
  if (wr.opcode != kWqeSend && wr.opcode != kWqeSendImm && wr.opcode != kWqeSendInvalidate &&
      wr.opcode != kWqeNop) {
    const RemoteSegment remote = {htobe64(wr.remote_address), htobe32(wr.rkey), 0};
    append(&segments, &remote, sizeof remote);
  }
  if (wr.opcode == kWqeCompareSwap || wr.opcode == kWqeFetchAdd) {
    const AtomicSegment atomic = {htobe64(wr.swap_or_add), htobe64(wr.compare)};
    append(&segments, &atomic, sizeof atomic);
  }
  if (wr.inline_data) {
    uint32_t total = 0;
    for (const Sge& sge : wr.sges) total += sge.length;
    const uint32_t head = htobe32(total | 1u << 31);
    append(&segments, &head, sizeof head);
    for (const Sge& sge : wr.sges) append(&segments, sge.address, sge.length);
    segments.resize((segments.size() + 15) & ~size_t{15});
  } else {
    for (const Sge& sge : wr.sges) {
      if (sge.length == 0) continue;  // skipped, as the library does
      const DataSegment data = {htobe32(sge.length), htobe32(sge.lkey),
                                htobe64(reinterpret_cast<uint64_t>(sge.address))};
      append(&segments, &data, sizeof data);
    }
  }
  CtrlSegment ctrl = {};
  ctrl.fm_ce_se = static_cast<uint8_t>((wr.signaled ? 2 << 2 : 0) | (wr.solicited ? 2 : 0) |
                                       (wr.fence ? 4 << 5 : 0));
  ctrl.imm = wr.imm_be;
  return post(segments, ctrl, wr.opcode);
}

uint16_t TestQp::post_window(const WindowWr& wr) {
  uint64_t mask = kUmrMaskFree | kUmrMaskKey | (wr.type2 ? kUmrMaskQpn : 0);
  UmrControlSegment control = {};
  control.flags = kUmrInline;
  KeySegment key = {};
  key.qpn_variant = htobe32((wr.type2 ? number() << 8 : 0xffffff00) | wr.variant);
  if (wr.length != 0) {
    mask |= kUmrMaskLength | kUmrMaskStart | kUmrMaskLocalWrite | kUmrMaskRemoteRead |
            kUmrMaskRemoteWrite | kUmrMaskAtomic;
    key.access = wr.rights;
    key.start = htobe64(wr.iova);
    key.length = htobe64(wr.length);
  } else {
    key.free = kKeyFree;
  }
  control.mask = htobe64(mask);
  std::vector<uint8_t> segments;
  append(&segments, &control, sizeof control);
  append(&segments, &key, sizeof key);
  if (wr.length != 0) {
    const DataSegment translation = {htobe32(static_cast<uint32_t>(wr.length)),
                                     htobe32(wr.region_key), htobe64(wr.address)};
    append(&segments, &translation, sizeof translation);
    segments.resize(segments.size() + 64 - sizeof translation);
  }
  CtrlSegment ctrl = {};
  ctrl.fm_ce_se = 2 << 2;
  ctrl.imm = htobe32(wr.window_key);
  return post(segments, ctrl, kWqeUmr);
}

void TestQp::post_recv(const std::vector<Sge>& sges) {
  uint8_t* at = rq_.data() + (size_t{rq_next_ % options_.rq_wqes} << kRecvShift);
  const size_t room = (1u << kRecvShift) / 16;
  size_t used = 0;
  for (const Sge& sge : sges) {
    const DataSegment data = {htobe32(sge.length), htobe32(sge.lkey),
                              htobe64(reinterpret_cast<uint64_t>(sge.address))};
    memcpy(at + used++ * 16, &data, sizeof data);
  }
  if (used < room) {
    const DataSegment end = {0, htobe32(kListEndKey), 0};
    memcpy(at + used * 16, &end, sizeof end);
  }
  db_[0] = htobe32(++rq_next_);
}

void TestQp::reset_indices() {
  sq_next_ = rq_next_ = 0;
  db_[0] = 0;
  db_[1] = 0;
}

// ---- TestSrq

TestSrq::TestSrq(Nic& own_nic, EventSink& sink, const SrqOptions& options)
    : nic_(own_nic),
      buffer_(size_t{options.wqe_count} << kRecvShift),
      tail_(static_cast<uint16_t>(options.wqe_count - 1)) {
  for (uint16_t i = 0; i < tail_; i++) link(i, static_cast<uint16_t>(i + 1));
  const SrqConfig config = {.buffer = buffer_.data(),
                            .db = &db_,
                            .wqe_count = options.wqe_count,
                            .wqe_shift = kRecvShift,
                            .user_handle = kUserHandle,
                            .pd = options.pd,
                            .sink = &sink,
                            .cq = options.cq,
                            .uidx = kUidx,
                            .xrcd = options.xrcd};
  EXPECT_EQ(nic_.srq_create(config, &srq), 0);
}

void TestSrq::link(uint16_t index, uint16_t next) {
  SrqNextSegment segment = {};
  segment.next_wqe_index = htobe16(next);
  memcpy(entry(index), &segment, sizeof segment);
}

uint16_t TestSrq::post(const std::vector<Sge>& sges) {
  const uint16_t index = head_;
  EXPECT_NE(head_, tail_) << "full";
  uint8_t* at = entry(index);
  SrqNextSegment segment;
  memcpy(&segment, at, sizeof segment);
  head_ = be16toh(segment.next_wqe_index);
  for (const Sge& sge : sges) {
    const DataSegment data = {htobe32(sge.length), htobe32(sge.lkey),
                              htobe64(reinterpret_cast<uint64_t>(sge.address))};
    memcpy(at += sizeof data, &data, sizeof data);
  }
  const DataSegment end = {0, htobe32(kListEndKey), 0};
  if (sges.size() < 3) memcpy(at + sizeof end, &end, sizeof end);
  ring(++counter_);
  return index;
}

void TestSrq::free(uint16_t index) {
  link(tail_, index);
  tail_ = index;
}

// ---- TestQp, states

int TestQp::to_init(uint32_t access) {
  ibv_qp_attr init = {};
  init.qp_state = IBV_QPS_INIT;
  init.port_num = 1;
  init.qp_access_flags = access;
  return modify(init, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS);
}

int TestQp::to_state(ibv_qp_state state) {
  ibv_qp_attr to = {};
  to.qp_state = state;
  return modify(to, IBV_QP_STATE);
}

ibv_qp_attr TestQp::query() const {
  ibv_qp_attr now = {};
  ibv_qp_init_attr init = {};
  EXPECT_EQ(nic.qp_query(qp, &now, &init), 0);
  return now;
}

// ---- Rig

Process::Process(FabricFile& fabric, MemoryNet& net, Clock& clock, int slot, FabricNic& own_nic,
                 const EngineTuning& tuning)
    : carrier(net.carrier(slot)),
      core(fabric, slot, clock, *carrier, tuning),
      fabric_nic(own_nic),
      nic(core.nic_open(&own_nic, &events)) {}

TestMr::TestMr(Nic& nic, size_t size, uint32_t access, uint32_t pd) : bytes(size) {
  EXPECT_EQ(nic.mr_register(pd, address(), size, address(), access, &key), 0);
}

namespace {

std::unique_ptr<FabricFile> fabric_make() {
  auto fabric = std::make_unique<FabricFile>();
  fabric->net = 99;
  for (uint32_t host = 0; host < 2; host++) {
    FabricNic& nic = fabric->nic[host * kMaxNicsPerHost];
    nic.host = host;
    fabric->host_name[host][0] = static_cast<char>('a' + host);
    nic.ipv4_be = htobe32(127u << 24 | 99 << 16 | (host + 1) << 8 | 1);
    nic.used = 1;
  }
  fabric->host_count = 2;
  return fabric;
}

}  // namespace

EngineTuning Rig::tuning_default() {
  EngineTuning tuning;
  tuning.transport.ack_timeout_min_ns = 0;  // exact times
  return tuning;
}

Rig::Rig(uint64_t seed, const EngineTuning& tuning)
    : fabric(fabric_make()),
      net(seed),
      a(*fabric, net, clock, 1, fabric->nic[0], tuning),
      b(*fabric, net, clock, 2, fabric->nic[kMaxNicsPerHost], tuning) {}

namespace {

struct Masks {
  int rtr, rts;
};

Masks masks_of(ibv_qp_type type) {
  constexpr int kRtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  constexpr int kResponds = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  constexpr int kRts = IBV_QP_STATE | IBV_QP_SQ_PSN;
  constexpr int kRequests =
      IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  switch (type) {
    case IBV_QPT_UC:
      return {kRtr, kRts};
    case IBV_QPT_XRC_SEND:
      return {kRtr, kRts | kRequests};
    case IBV_QPT_XRC_RECV:
      return {kRtr | kResponds, kRts | IBV_QP_TIMEOUT};
    default:
      return {kRtr | kResponds, kRts | kRequests};
  }
}

}  // namespace

void Rig::connect(TestQp& first, TestQp& second) {
  const auto bring_up = [&](TestQp& own, TestQp& other, const FabricNic& remote) {
    ASSERT_EQ(own.to_init(), 0);
    ibv_qp_attr attr = own.attr;
    attr.qp_state = IBV_QPS_RTR;
    attr.dest_qp_num = other.number();
    attr.rq_psn = other.attr.sq_psn;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = 1;
    attr.ah_attr.grh.sgid_index = static_cast<uint8_t>(own.gid_index);
    nic_gid(remote, other.gid_index, attr.ah_attr.grh.dgid.raw);
    const Masks masks = masks_of(own.type());
    ASSERT_EQ(own.modify(attr, masks.rtr), 0);
    attr.qp_state = IBV_QPS_RTS;
    ASSERT_EQ(own.modify(attr, masks.rts), 0);
  };
  const auto fabric_of = [](TestQp& qp) -> const FabricNic& {
    return static_cast<NicModel&>(qp.nic).fabric();
  };
  bring_up(first, second, fabric_of(second));
  bring_up(second, first, fabric_of(first));
}

void Rig::start_datagrams(TestQp& qp, uint32_t qkey) {
  ibv_qp_attr attr = qp.attr;
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qkey = qkey;
  ASSERT_EQ(qp.modify(attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), 0);
  attr.qp_state = IBV_QPS_RTR;
  ASSERT_EQ(qp.modify(attr, IBV_QP_STATE), 0);
  attr.qp_state = IBV_QPS_RTS;
  ASSERT_EQ(qp.modify(attr, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
}

void Rig::step(uint64_t step_ns) {
  a.core.pass();
  b.core.pass();
  clock.advance(step_ns);
}

bool Rig::run_until(const std::function<bool()>& done, uint64_t limit_ns, uint64_t step_ns) {
  for (uint64_t spent = 0; spent < limit_ns; spent += step_ns) {
    if (done()) return true;
    step(step_ns);
  }
  return done();
}

void Rig::run_for(uint64_t ns, uint64_t step_ns) {
  for (uint64_t spent = 0; spent < ns; spent += step_ns) step(step_ns);
}

void Rig::fault_set(FabricNic& nic, uint32_t faults) {
  if ((faults & kDead) != 0) nic.kills++;
  nic.faults = faults;
  nic.generation++;
}

void Rig::fault(FabricNic& nic, const std::string& text) {
  FaultCommand command;
  std::string error;
  ASSERT_TRUE(fault_parse(*fabric, text, &command, &error)) << error;
  ASSERT_TRUE(fault_apply(*fabric, nic, command, clock.now_ns(), &error)) << error;
}

Pair::Pair(Rig& rig, uint32_t mtu, const QpOptions& options,
           const std::function<void(TestQp&, TestQp&)>& prepare)
    : a_cq(*rig.a.nic, rig.a.events),
      b_cq(*rig.b.nic, rig.b.events),
      a(*rig.a.nic, rig.a.events, a_cq, a_cq, options),
      b(*rig.b.nic, rig.b.events, b_cq, b_cq, options) {
  for (TestQp* qp : {&a, &b}) {
    qp->attr.path_mtu = mtu == 256    ? IBV_MTU_256
                        : mtu == 512  ? IBV_MTU_512
                        : mtu == 1024 ? IBV_MTU_1024
                        : mtu == 2048 ? IBV_MTU_2048
                                      : IBV_MTU_4096;
  }
  b.attr.sq_psn = 0x000010;
  if (prepare) prepare(a, b);
  rig.connect(a, b);
}

Pair::~Pair() {
  for (TestQp* qp : {&a, &b}) {
    if (qp->qp != nullptr) qp->destroy();
  }
}

}  // namespace cxemu::test
