// Target: packets that arrive at queue pairs of all services in all states, while these send and
// receive. Memory that packets must not change has to stay as it is.
#include <bit>
#include <optional>

#include "fabric/gid.h"
#include "fuzz/machine.h"
#include "fuzz/target.h"
#include "nic/mlx5_layout.h"

namespace cxemu::fuzz {

namespace {

constexpr int kSlot = 2;
constexpr uint32_t kRegion = 16384;
constexpr uint32_t kQkey = 0x1234;
constexpr uint32_t kSendBlocks = 32, kReceives = 16, kShift = 6;
constexpr uint32_t kQps = 5;
constexpr int kActionsMax = 80;

struct Machine {
  Machine() {
    fabric.net = 99;
    for (uint32_t host = 0; host < 2; host++) {
      FabricNic& nic = fabric.nic[host * kMaxNicsPerHost];
      nic.host = host;
      nic.ipv4_be = htobe32(127u << 24 | 99 << 16 | (host + 1) << 8 | 1);
      nic.used = 1;
    }
  }
  FabricFile fabric = {};
  StillClock clock;
  LoopCarrier carrier{kSlot};
  EngineCore core{fabric, kSlot, clock, carrier};
};

// The engine and its tables are kept, because making them takes longer than one input.
Machine& machine() {
  static Machine* const kept = new Machine;
  return *kept;
}

struct Region {
  Region(Nic& nic, uint32_t pd, uint32_t access) : bytes(kRegion, 0x5a) {
    require(nic.mr_register(pd, address(), kRegion, address(), access, &key) == 0, "no region");
  }
  uint64_t address() const { return reinterpret_cast<uint64_t>(bytes.data()); }
  bool untouched() const {
    return std::all_of(bytes.begin(), bytes.end(), [](uint8_t byte) { return byte == 0x5a; });
  }
  std::vector<uint8_t> bytes;
  uint32_t key = 0;
};

struct End {
  ibv_qp_type type = IBV_QPT_RC;
  Qp* qp = nullptr;
  std::vector<uint8_t> sq = std::vector<uint8_t>(kSendBlocks * 64);
  std::vector<uint8_t> rq = std::vector<uint8_t>(kReceives << kShift);
  alignas(8) volatile uint32_t db[2] = {};
  uint16_t sent = 0, received = 0;
};

class Session {
 public:
  explicit Session(std::span<const uint8_t> bytes);
  ~Session();
  void run();

 private:
  void queues_make();
  void connect(End& end);
  int mask_of(const End& end, const ibv_qp_attr& attr, uint32_t step);
  void frame(bool raw);
  uint64_t address_take(uint32_t* key);
  void wqe_post();
  void receive_post();
  void trouble();
  void cqes_take();

  Machine& m_ = machine();
  Input input_;
  NoEvents events_;
  std::unique_ptr<Nic> nic_;
  static constexpr uint32_t kCqes = 256;
  std::vector<uint8_t> cq_buffer_ = std::vector<uint8_t>(kCqes * 64);
  std::vector<uint8_t> srq_buffer_ = std::vector<uint8_t>(kReceives << kShift);
  alignas(8) volatile uint32_t cq_db_[2] = {};
  alignas(8) volatile uint32_t srq_db_[2] = {};
  Cq* cq_ = nullptr;
  Srq* srq_ = nullptr;
  uint32_t taken_ = 0;
  std::optional<Region> open_, readable_, foreign_;
  End ends_[kQps];
};

Session::Session(std::span<const uint8_t> bytes) : input_(bytes) {
  nic_ = m_.core.nic_open(&m_.fabric.nic[kMaxNicsPerHost], &events_);
  open_.emplace(*nic_, 1,
                IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                    IBV_ACCESS_REMOTE_ATOMIC);
  readable_.emplace(*nic_, 1, IBV_ACCESS_REMOTE_READ);
  foreign_.emplace(*nic_, 2, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  queues_make();
}

Session::~Session() {
  for (End& end : ends_) nic_->qp_destroy(end.qp);
  nic_->srq_destroy(srq_);
  nic_->cq_destroy(cq_);
  nic_.reset();
  m_.carrier.clear();
}

void Session::queues_make() {
  const CqConfig cq = {.buffer = cq_buffer_.data(),
                       .db = cq_db_,
                       .cqe_count = kCqes,
                       .cqe_size = 64,
                       .user_handle = 1,
                       .channel_fd = -1,
                       .sink = &events_};
  require(nic_->cq_create(cq, &cq_) == 0, "no completion queue");
  const SrqConfig srq = {.buffer = srq_buffer_.data(),
                         .db = srq_db_,
                         .wqe_count = kReceives,
                         .wqe_shift = kShift,
                         .user_handle = 2,
                         .pd = 1,
                         .sink = &events_,
                         .cq = cq_,
                         .uidx = 7,
                         .xrcd = 1};
  require(nic_->srq_create(srq, &srq_) == 0, "no shared receive queue");
  constexpr ibv_qp_type kTypes[kQps] = {IBV_QPT_RC, IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD,
                                        IBV_QPT_XRC_RECV};
  for (uint32_t i = 0; i < kQps; i++) {
    End& end = ends_[i];
    end.type = kTypes[i];
    const bool xrc = end.type == IBV_QPT_XRC_RECV;
    const QpConfig config = {.type = end.type,
                             .rq_buffer = end.rq.data(),
                             .rq_wqe_count = xrc ? 0 : kReceives,
                             .rq_wqe_shift = kShift,
                             .sq_buffer = end.sq.data(),
                             .sq_wqe_count = xrc ? 0 : kSendBlocks,
                             .db = end.db,
                             .uidx = 1 + i,
                             .user_handle = 3 + i,
                             .send_cq = xrc ? nullptr : cq_,
                             .recv_cq = xrc ? nullptr : cq_,
                             .pd = xrc ? 0u : 1u,
                             .sq_sig_all = false,
                             .cap = {},
                             .sink = &events_,
                             .xrcd = xrc ? 1u : 0u};
    require(nic_->qp_create(config, &end.qp) == 0, "no queue pair");
    connect(end);
  }
}

// Moves a queue pair to RTS with attributes for everything; each service takes those that it has.
void Session::connect(End& end) {
  ibv_qp_attr attr = {};
  attr.port_num = 1;
  attr.qkey = kQkey;
  attr.qp_access_flags =
      IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  attr.path_mtu = IBV_MTU_1024;
  // The second RC queue pair is connected to itself.
  const bool loop = &end == &ends_[1];
  attr.dest_qp_num = loop ? nic_->qp_number(end.qp) : 0x10001;
  attr.rq_psn = attr.sq_psn = 0xfffff0;
  attr.max_rd_atomic = attr.max_dest_rd_atomic = 4;
  attr.min_rnr_timer = 1;
  attr.timeout = 5;
  attr.retry_cnt = attr.rnr_retry = 3;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  nic_gid(m_.fabric.nic[loop ? kMaxNicsPerHost : 0], 3, attr.ah_attr.grh.dgid.raw);
  constexpr ibv_qp_state kStates[] = {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS};
  for (uint32_t i = 0; i < std::size(kStates); i++) {
    attr.qp_state = kStates[i];
    require(nic_->qp_modify(end.qp, attr, mask_of(end, attr, i)) == 0, "cannot connect");
  }
}

// The attributes that the transition needs, found once for each service by trying.
int Session::mask_of(const End& end, const ibv_qp_attr& attr, uint32_t step) {
  constexpr int kOptions[] = {IBV_QP_PKEY_INDEX | IBV_QP_PORT,
                              IBV_QP_QKEY,
                              IBV_QP_ACCESS_FLAGS,
                              IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN,
                              IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
                              IBV_QP_SQ_PSN,
                              IBV_QP_TIMEOUT,
                              IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC};
  static int found[kQps][3];
  int& mask = found[&end - ends_][step];
  for (uint32_t choice = 0; mask == 0 && choice < 1u << std::size(kOptions); choice++) {
    int given = IBV_QP_STATE;
    for (uint32_t i = 0; i < std::size(kOptions); i++) {
      if ((choice >> i & 1) != 0) given |= kOptions[i];
    }
    ibv_qp_state next;
    if (qp_modify_check(*end.qp, attr, given, &next) == 0) mask = given;
  }
  return mask;
}

uint64_t Session::address_take(uint32_t* key) {
  const auto offset = input_.take<uint16_t>();
  switch (input_.below(4)) {
    case 0:
      *key = readable_->key;
      return readable_->address() + offset;
    case 1:
      *key = foreign_->key;
      return foreign_->address() + offset;
    case 2:
      *key = input_.take<uint32_t>();
      return offset;
    default:
      *key = open_->key;
      return open_->address() + offset;
  }
}

void Session::frame(bool raw) {
  End& end = ends_[input_.below(kQps)];
  const uint32_t own = m_.fabric.nic[kMaxNicsPerHost].ipv4_be;
  Frame frame = {m_.fabric.nic[0].ipv4_be, own, {}};
  if (raw) {
    frame.bytes.resize(input_.take<uint8_t>());
    input_.take(frame.bytes.data(), frame.bytes.size());
    const uint32_t number = htobe32(nic_->qp_number(end.qp));
    if (frame.bytes.size() >= 8) memcpy(frame.bytes.data() + 4, &number, sizeof number);
    m_.carrier.arrive(std::move(frame));
    return;
  }
  constexpr Service kServices[] = {Service::kRc, Service::kRc, Service::kUc, Service::kUd,
                                   Service::kXrc};
  ibv_qp_attr attr;
  ibv_qp_init_attr init;
  require(nic_->qp_query(end.qp, &attr, &init) == 0, "no query");
  const auto code = input_.take<uint8_t>();
  const auto service = kServices[&end - ends_];
  const auto opcode = static_cast<uint8_t>(static_cast<uint8_t>(service) << 5 | (code & 0x1f));
  if (!opcode_is_known(opcode)) return;
  Packet packet = {.opcode = static_cast<Operation>(code & 0x1f), .service = service};
  const bool response = opcode_is_response(packet.opcode);
  packet.dest_qpn = nic_->qp_number(end.qp);
  packet.psn = psn_add(response ? attr.sq_psn + kPsnMask : attr.rq_psn,
                       static_cast<uint32_t>(input_.take<int8_t>()) & kPsnMask);
  packet.solicited = (code & 0x80) != 0;
  packet.ack_request = (code & 0x40) != 0;
  packet.remote_address = address_take(&packet.rkey);
  const auto length = input_.take<uint16_t>();
  packet.dma_length = (code & 0x20) != 0 ? uint32_t{length} << 16 : length;
  packet.qkey = kQkey;
  packet.src_qpn = 0x10001;
  packet.srqn = nic_->srq_number(srq_);
  packet.syndrome = input_.take<uint8_t>();
  packet.swap_or_add = packet.original = 1;
  const size_t payload =
      opcode_has_payload(packet.opcode) ? std::min<size_t>(input_.take<uint16_t>(), kMaxMtu) : 0;
  frame.bytes.resize(kMaxHeader);
  frame.bytes.resize(headers_encode(packet, payload, frame.bytes.data()));
  frame.bytes.resize(frame.bytes.size() + payload + pad_size(payload), 0xcc);
  m_.carrier.arrive(std::move(frame));
}

// Posts a WQE of arbitrary segments, with a head that makes the NIC execute it.
void Session::wqe_post() {
  End& end = ends_[input_.below(kQps - 1)];
  const uint32_t segments = 1 + input_.below(16);
  uint8_t* at = end.sq.data() + end.sent % kSendBlocks * 64;
  const uint32_t room = static_cast<uint32_t>(end.sq.data() + end.sq.size() - at) / 16;
  const uint8_t opcode = input_.take<uint8_t>();
  const uint8_t flags = input_.take<uint8_t>();
  for (uint32_t i = 1; i < segments && i < room; i++) {
    uint32_t key;
    switch (input_.below(4)) {
      case 0: {
        const uint64_t address = address_take(&key);
        const RemoteSegment remote = {htobe64(address), htobe32(key), 0};
        memcpy(at + i * 16, &remote, sizeof remote);
        break;
      }
      case 1: {
        const uint64_t address = address_take(&key);
        const DataSegment data = {htobe32(input_.take<uint16_t>()), htobe32(key), htobe64(address)};
        memcpy(at + i * 16, &data, sizeof data);
        break;
      }
      case 2: {
        const uint32_t head = htobe32(kInlineFlag | input_.take<uint8_t>());
        memcpy(at + i * 16, &head, sizeof head);
        break;
      }
      default:
        input_.take(at + i * 16, 16);
    }
  }
  CtrlSegment ctrl = {};
  ctrl.opmod_idx_opcode = htobe32(uint32_t{end.sent} << 8 | opcode);
  ctrl.qpn_ds = htobe32(nic_->qp_number(end.qp) << 8 | segments);
  ctrl.fm_ce_se = flags;
  memcpy(at, &ctrl, sizeof ctrl);
  end.sent = static_cast<uint16_t>(end.sent + (segments + 3) / 4);
  end.db[1] = htobe32(end.sent);
}

void Session::receive_post() {
  const uint8_t which = input_.below(kQps);
  const bool shared = which == kQps - 1;
  End& end = ends_[which];
  std::vector<uint8_t>& ring = shared ? srq_buffer_ : end.rq;
  uint8_t* at = ring.data() + (size_t{end.received % kReceives} << kShift);
  const uint32_t room = 1u << kShift;
  if (input_.below(4) == 0) {
    input_.take(at, room);
  } else {
    uint32_t key;
    const uint64_t address = address_take(&key);
    const DataSegment data = {htobe32(input_.take<uint16_t>()), htobe32(key), htobe64(address)};
    const DataSegment end_of_list = {0, htobe32(kListEndKey), 0};
    const uint32_t first = shared ? 16 : 0;
    memcpy(at + first, &data, sizeof data);
    memcpy(at + first + 16, &end_of_list, sizeof end_of_list);
  }
  end.received++;
  if (shared) {
    srq_db_[0] = htobe32(end.received);
  } else {
    end.db[0] = htobe32(end.received);
  }
}

// Does what an application may do at any time.
void Session::trouble() {
  End& end = ends_[input_.below(kQps)];
  switch (input_.below(6)) {
    case 0: {
      ibv_qp_attr attr = {};
      attr.qp_state = static_cast<ibv_qp_state>(input_.below(8));
      (void)nic_->qp_modify(end.qp, attr, IBV_QP_STATE);
      break;
    }
    case 1:
      if (open_->key != 0) (void)nic_->mr_deregister(open_->key);
      break;
    case 2:
      end.db[input_.below(2)] = input_.take<uint32_t>();
      break;
    case 3:
      (void)nic_->srq_limit_set(srq_, input_.take<uint8_t>());
      break;
    case 4: {
      ibv_qp_state state = end.type == IBV_QPT_UD ? IBV_QPS_RESET : IBV_QPS_ERR;
      ibv_qp_attr attr = {};
      attr.qp_state = state;
      (void)nic_->qp_modify(end.qp, attr, IBV_QP_STATE);
      break;
    }
    default: {
      ibv_qp_attr attr = {};
      attr.qp_state = IBV_QPS_RESET;
      if (nic_->qp_modify(end.qp, attr, IBV_QP_STATE) != 0) break;
      end.sent = end.received = 0;
      end.db[0] = 0;
      end.db[1] = 0;
      connect(end);
    }
  }
}

void Session::cqes_take() {
  for (uint32_t i = 0; i < kCqes; i++) {
    const uint8_t owner = cq_buffer_[(taken_ % kCqes) * 64 + 63];
    if (owner >> 4 == kCqeInvalid || (owner & 1) != ((taken_ & kCqes) != 0 ? 1 : 0)) break;
    taken_++;
  }
  cq_db_[0] = htobe32(taken_ & 0xffffff);
}

void Session::run() {
  for (int i = 0; i < kActionsMax && !input_.ended(); i++) {
    switch (input_.below(8)) {
      case 0:
      case 1:
      case 2:
        frame(false);
        break;
      case 3:
        frame(true);
        break;
      case 4:
        wqe_post();
        break;
      case 5:
        receive_post();
        break;
      case 6:
        trouble();
        break;
      default:
        m_.clock.advance(uint64_t{input_.take<uint8_t>()} * 10'000);
        m_.core.pass();
        cqes_take();
    }
  }
  for (int i = 0; i < 4; i++) {
    m_.clock.advance(200'000);
    m_.core.pass();
    cqes_take();
  }
  require(readable_->untouched(), "memory was written that may only be read");
  require(foreign_->untouched(), "memory of another protection domain was written");
}

}  // namespace

void packets(std::span<const uint8_t> bytes) {
  Session(bytes).run();
}

}  // namespace cxemu::fuzz
