// Target: commands of the uverbs ABI, with the NIC model that executes them. Each command is a
// sensible one in which a few bytes are changed, so that the input often gets past the parser.
//
// Addresses in commands are the application's own affair: the kernel refuses unmapped ones and
// writes to all others. Here they are mapped into an arena, or to an inaccessible page next to it.
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "fabric/gid.h"
#include "fabric/net.h"
#include "fuzz/machine.h"
#include "fuzz/target.h"
#include "uverbs/command.h"
#include "uverbs/ioctl.h"

namespace cxemu::fuzz {

namespace {

constexpr uint32_t kExtended = IB_USER_VERBS_CMD_FLAG_EXTENDED;
constexpr int kSlot = 3;
constexpr size_t kArena = 1 << 18;
constexpr size_t kPage = 4096;
constexpr int kActionsMax = 60;

// The engine without its thread.
class CoreEngine final : public Engine {
 public:
  explicit CoreEngine(FabricFile& fabric) : core_(fabric, kSlot, clock_, carrier_) {}
  EngineLock& lock() override { return lock_; }
  std::unique_ptr<Nic> nic_open(FabricNic* nic, EventSink* sink) override {
    return core_.nic_open(nic, sink);
  }
  bool drive() override {
    clock_.advance(100'000);
    return core_.pass();
  }
  void wake() override {}
  bool finish() override { return true; }
  bool gone() const override { return false; }
  void clear() { carrier_.clear(); }

 private:
  EngineLock lock_;
  StillClock clock_;
  LoopCarrier carrier_{kSlot};
  EngineCore core_;
};

// Made once, and removed when the process ends.
struct Machine {
  Machine() {
    std::string made = std::filesystem::temp_directory_path() / "cxemu-fuzz-XXXXXX";
    require(mkdtemp(made.data()) != nullptr, "no directory");
    directory = made;
    std::string error;
    fabric = Fabric::open_or_create(directory + "/fabric", &error);
    require(static_cast<bool>(fabric), "no fabric");
    fabric.host_ensure("a", 1);
    engine = std::make_unique<CoreEngine>(*fabric.operator->());
    void* memory =
        mmap(nullptr, kPage + kArena + kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    require(memory != MAP_FAILED, "no arena");
    arena = static_cast<uint8_t*>(memory) + kPage;
    pages = static_cast<uint8_t*>(mmap(nullptr, device_pages_size(), PROT_READ | PROT_WRITE,
                                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    require(pages != MAP_FAILED, "no device pages");
    require(mprotect(arena, kArena, PROT_READ | PROT_WRITE) == 0, "no arena");
  }
  ~Machine() {
    net_release("/tmp", fabric->net, directory + "/fabric");
    std::filesystem::remove_all(directory);
  }
  std::string directory;
  Fabric fabric;
  std::unique_ptr<CoreEngine> engine;
  uint8_t* arena = nullptr;
  uint8_t* pages = nullptr;  // what the mapping of the device file shows
};

Machine& machine() {
  static Machine kept;
  return kept;
}

// Where a command holds addresses of the application.
struct Addresses {
  uint32_t number;
  std::vector<size_t> core, driver;
};
const std::vector<Addresses>& addresses() {
  static const std::vector<Addresses> all = {
      {IB_USER_VERBS_CMD_REG_MR, {offsetof(ib_uverbs_reg_mr, start)}, {}},
      {IB_USER_VERBS_CMD_REREG_MR, {offsetof(ib_uverbs_rereg_mr, start)}, {}},
      {IB_USER_VERBS_CMD_CREATE_CQ, {}, {0, 8}},
      {IB_USER_VERBS_CMD_RESIZE_CQ, {}, {0}},
      {kExtended | IB_USER_VERBS_EX_CMD_CREATE_CQ, {}, {0, 8}},
      {IB_USER_VERBS_CMD_CREATE_QP, {}, {0, 8}},
      {kExtended | IB_USER_VERBS_EX_CMD_CREATE_QP, {}, {0, 8}},
      {IB_USER_VERBS_CMD_CREATE_SRQ, {}, {0, 8}},
      {IB_USER_VERBS_CMD_CREATE_XSRQ, {}, {0, 8}},
  };
  return all;
}

class Session {
 public:
  explicit Session(std::span<const uint8_t> bytes);
  ~Session();
  void run();

 private:
  struct Request {
    std::vector<uint8_t> core, driver;
  };
  const Command& command_choose();
  Request template_make(const Command& command);
  uint32_t handle_take(uint32_t usual);
  void handle_put(const Command& command, std::vector<uint8_t>& core);
  bool region_make(const Command& command, std::vector<uint8_t>& core);
  bool queue_make(const Command& command, Request& request);
  static void rings_put(std::vector<uint8_t>& driver);
  uint8_t qp_type_take();
  void transition_make(std::vector<uint8_t>& core);
  void world_make();
  uint64_t ring_of_first_qp() const { return reinterpret_cast<uint64_t>(m_.arena) + 16384; }
  void change(Request& request);
  void addresses_lead(const Command& command, Request& request);
  uint64_t address_of(uint64_t any) const;
  void issue(const Command& command);
  int write_send(const Command& command, const Request& request);
  int ioctl_send(const Command& command, const Request& request);
  void method_send();
  void anything_send();
  template <typename T>
  static void put(std::vector<uint8_t>& bytes, size_t offset, T value) {
    if (offset + sizeof value <= bytes.size()) memcpy(bytes.data() + offset, &value, sizeof value);
  }

  Machine& m_ = machine();
  Input input_;
  std::unique_ptr<Context> context_;
  uint8_t* answer_;  // at the end of the arena
  uint32_t first_qpn_ = 0;
  static constexpr size_t kAnswer = 4096;
};

Session::Session(std::span<const uint8_t> bytes)
    : input_(bytes),
      context_(Context::open(*m_.engine, m_.fabric, m_.fabric.nic(0, 0), nullptr, m_.pages)),
      answer_(m_.arena + kArena - kAnswer) {
  require(context_ != nullptr, "no context");
  memset(m_.arena, 0, kArena);
  memset(m_.pages + size_t{kPageAllocations} * device_page_size(), 0, device_page_size());
}

Session::~Session() {
  context_.reset();
  m_.engine->clear();
  // The application owns the descriptors that commands made.
  for (int fd = 3; fd < 256; fd++) {
    char name[64], target[64];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    const ssize_t length = readlink(name, target, sizeof target - 1);
    if (length <= 0) continue;
    target[length] = 0;
    if (strncmp(target, "pipe:", 5) == 0) close(fd);
  }
}

const Command& Session::command_choose() {
  static const std::vector<const Command*> all = [] {
    std::vector<const Command*> found;
    for (const auto table : {device_commands(), memory_commands(), cq_commands(), qp_commands(),
                             srq_commands(), xrc_commands()}) {
      for (const Command& command : table) found.push_back(&command);
    }
    return found;
  }();
  return *all[input_.take<uint8_t>() % all.size()];
}

// Mostly returns `usual`; sometimes another small number.
uint32_t Session::handle_take(uint32_t usual) {
  const uint8_t choice = input_.take<uint8_t>();
  return choice < 0xc0 ? usual : choice & 0x0fu;
}

// The handles that world_make() gets, in this order.
enum : uint32_t { kPd, kCq, kQp, kSrq, kMr, kMw, kXrcd, kAh };

// Fills in the fields that must be right for the command to get anywhere.
Session::Request Session::template_make(const Command& command) {
  Request request = {std::vector<uint8_t>(command.core_in),
                     std::vector<uint8_t>(command.driver_in)};
  std::vector<uint8_t>& core = request.core;
  switch (command.number) {
    case IB_USER_VERBS_CMD_GET_CONTEXT:
      put(request.driver, 0, uint32_t{16});  // total_num_bfregs
      put(request.driver, 4, uint32_t{4});
      break;
    case IB_USER_VERBS_CMD_QUERY_PORT:
      put(core, offsetof(ib_uverbs_query_port, port_num), uint8_t{1});
      break;
    case IB_USER_VERBS_CMD_ALLOC_MW:
      put(core, offsetof(ib_uverbs_alloc_mw, pd_handle), handle_take(kPd));
      put(core, offsetof(ib_uverbs_alloc_mw, mw_type), uint8_t{1});
      break;
    case IB_USER_VERBS_CMD_OPEN_XRCD:
      put(core, offsetof(ib_uverbs_open_xrcd, fd), uint32_t{0xffffffff});
      put(core, offsetof(ib_uverbs_open_xrcd, oflags), uint32_t{O_CREAT});
      break;
    case IB_USER_VERBS_CMD_MODIFY_QP:
    case kExtended | IB_USER_VERBS_EX_CMD_MODIFY_QP:
      transition_make(core);
      break;
    default:
      if (region_make(command, core) || queue_make(command, request)) break;
      handle_put(command, core);
  }
  return request;
}

// Handles for commands that name one object and little else.
void Session::handle_put(const Command& command, std::vector<uint8_t>& core) {
  static constexpr struct {
    const char* part;
    uint32_t handle;
  } kUsual[] = {{"_pd", kPd}, {"_cq", kCq}, {"_qp", kQp},     {"_srq", kSrq},
                {"_mr", kMr}, {"_mw", kMw}, {"_xrcd", kXrcd}, {"_ah", kAh}};
  for (const auto& usual : kUsual) {
    if (strstr(command.name, usual.part) == nullptr) continue;
    put(core, command.core_out == 0 ? 0 : 8, handle_take(usual.handle));
  }
}

bool Session::region_make(const Command& command, std::vector<uint8_t>& core) {
  const uint64_t start = reinterpret_cast<uint64_t>(m_.arena);
  switch (command.number) {
    case IB_USER_VERBS_CMD_REG_MR:
      put(core, offsetof(ib_uverbs_reg_mr, start), start);
      put(core, offsetof(ib_uverbs_reg_mr, length), uint64_t{kArena / 2});
      put(core, offsetof(ib_uverbs_reg_mr, hca_va), start);
      put(core, offsetof(ib_uverbs_reg_mr, pd_handle), handle_take(kPd));
      put(core, offsetof(ib_uverbs_reg_mr, access_flags), uint32_t{0x1f});
      return true;
    case IB_USER_VERBS_CMD_REREG_MR:
      put(core, offsetof(ib_uverbs_rereg_mr, start), start);
      put(core, offsetof(ib_uverbs_rereg_mr, length), uint64_t{kArena / 4});
      put(core, offsetof(ib_uverbs_rereg_mr, hca_va), start);
      put(core, offsetof(ib_uverbs_rereg_mr, mr_handle), handle_take(kMr));
      put(core, offsetof(ib_uverbs_rereg_mr, pd_handle), handle_take(kPd));
      put(core, offsetof(ib_uverbs_rereg_mr, flags), uint32_t{input_.below(8)});
      put(core, offsetof(ib_uverbs_rereg_mr, access_flags), uint32_t{7});
      return true;
    case IB_USER_VERBS_CMD_CREATE_AH:
      put(core, offsetof(ib_uverbs_create_ah, pd_handle), handle_take(kPd));
      put(core, offsetof(ib_uverbs_create_ah, attr.is_global), uint8_t{1});
      put(core, offsetof(ib_uverbs_create_ah, attr.port_num), uint8_t{1});
      put(core, offsetof(ib_uverbs_create_ah, attr.grh.sgid_index), uint8_t{3});
      nic_gid(*m_.fabric.nic(0, 0), 3, core.data() + offsetof(ib_uverbs_create_ah, attr.grh.dgid));
      return true;
    default:
      return false;
  }
}

// Now and then, queues share pages of the arena, which no sane program would do.
bool Session::queue_make(const Command& command, Request& request) {
  std::vector<uint8_t>& core = request.core;
  std::vector<uint8_t>& driver = request.driver;
  const uint64_t at = reinterpret_cast<uint64_t>(m_.arena) + input_.below(32) * uint64_t{8192};
  const uint64_t doorbell = at + 4096;
  switch (command.number) {
    case IB_USER_VERBS_CMD_CREATE_CQ:
      put(core, offsetof(ib_uverbs_create_cq, cqe), uint32_t{31});
      put(core, offsetof(ib_uverbs_create_cq, comp_channel), int32_t{-1});
      put(driver, offsetof(mlx5_ib_create_cq, cqe_size), uint32_t{64});
      break;
    case kExtended | IB_USER_VERBS_EX_CMD_CREATE_CQ:
      put(core, offsetof(ib_uverbs_ex_create_cq, cqe), uint32_t{31});
      put(core, offsetof(ib_uverbs_ex_create_cq, comp_channel), int32_t{-1});
      put(driver, offsetof(mlx5_ib_create_cq, cqe_size), uint32_t{64});
      break;
    case IB_USER_VERBS_CMD_RESIZE_CQ:
      put(core, offsetof(ib_uverbs_resize_cq, cq_handle), handle_take(kCq));
      put(core, offsetof(ib_uverbs_resize_cq, cqe), uint32_t{15});
      put(driver, offsetof(mlx5_ib_resize_cq, cqe_size), uint16_t{64});
      put(driver, 0, at);
      return true;
    case IB_USER_VERBS_CMD_CREATE_QP:
      put(core, offsetof(ib_uverbs_create_qp, user_handle), uint64_t{0x77});
      put(core, offsetof(ib_uverbs_create_qp, pd_handle), handle_take(kPd));
      put(core, offsetof(ib_uverbs_create_qp, send_cq_handle), handle_take(kCq));
      put(core, offsetof(ib_uverbs_create_qp, recv_cq_handle), handle_take(kCq));
      put(core, offsetof(ib_uverbs_create_qp, srq_handle), handle_take(kSrq));
      put(core, offsetof(ib_uverbs_create_qp, qp_type), qp_type_take());
      put(core, offsetof(ib_uverbs_create_qp, is_srq), input_.below(2));
      rings_put(driver);
      break;
    case kExtended | IB_USER_VERBS_EX_CMD_CREATE_QP:
      put(core, offsetof(ib_uverbs_ex_create_qp, pd_handle), handle_take(kPd));
      put(core, offsetof(ib_uverbs_ex_create_qp, send_cq_handle), handle_take(kCq));
      put(core, offsetof(ib_uverbs_ex_create_qp, recv_cq_handle), handle_take(kCq));
      put(core, offsetof(ib_uverbs_ex_create_qp, srq_handle), handle_take(kSrq));
      put(core, offsetof(ib_uverbs_ex_create_qp, qp_type), qp_type_take());
      put(core, offsetof(ib_uverbs_ex_create_qp, is_srq), input_.below(2));
      rings_put(driver);
      break;
    case IB_USER_VERBS_CMD_CREATE_SRQ:
      put(core, offsetof(ib_uverbs_create_srq, pd_handle), handle_take(kPd));
      put(core, offsetof(ib_uverbs_create_srq, max_wr), uint32_t{15});
      put(core, offsetof(ib_uverbs_create_srq, max_sge), uint32_t{1});
      break;
    case IB_USER_VERBS_CMD_CREATE_XSRQ:
      put(core, offsetof(ib_uverbs_create_xsrq, srq_type), uint32_t{input_.below(2)});
      put(core, offsetof(ib_uverbs_create_xsrq, pd_handle), handle_take(kPd));
      put(core, offsetof(ib_uverbs_create_xsrq, max_wr), uint32_t{15});
      put(core, offsetof(ib_uverbs_create_xsrq, max_sge), uint32_t{1});
      put(core, offsetof(ib_uverbs_create_xsrq, xrcd_handle), handle_take(kXrcd));
      put(core, offsetof(ib_uverbs_create_xsrq, cq_handle), handle_take(kCq));
      break;
    default:
      return false;
  }
  put(driver, 0, at);
  put(driver, 8, doorbell);
  return true;
}

void Session::rings_put(std::vector<uint8_t>& driver) {
  put(driver, offsetof(mlx5_ib_create_qp, sq_wqe_count), uint32_t{16});
  put(driver, offsetof(mlx5_ib_create_qp, rq_wqe_count), uint32_t{8});
  put(driver, offsetof(mlx5_ib_create_qp, rq_wqe_shift), uint32_t{5});
}

uint8_t Session::qp_type_take() {
  constexpr uint8_t kTypes[] = {IBV_QPT_RC, IBV_QPT_RC,       IBV_QPT_UC,
                                IBV_QPT_UD, IBV_QPT_XRC_SEND, IBV_QPT_XRC_RECV};
  return kTypes[input_.below(std::size(kTypes))];
}

// One step towards RTS, connected to the first queue pair of the process.
void Session::transition_make(std::vector<uint8_t>& core) {
  constexpr struct {
    uint8_t state;
    uint32_t mask;
  } kSteps[] = {
      {IBV_QPS_INIT, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
      {IBV_QPS_RTR, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                        IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER},
      {IBV_QPS_RTS, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                        IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC},
      {IBV_QPS_INIT, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY},
      {IBV_QPS_RTR, IBV_QP_STATE},
      {IBV_QPS_RTS, IBV_QP_STATE | IBV_QP_SQ_PSN},
      {IBV_QPS_RTR, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN},
      {IBV_QPS_SQD, IBV_QP_STATE},
      {IBV_QPS_ERR, IBV_QP_STATE},
      {IBV_QPS_RESET, IBV_QP_STATE}};
  const auto& step = kSteps[input_.below(std::size(kSteps))];
  put(core, offsetof(ib_uverbs_modify_qp, qp_handle), handle_take(kQp));
  put(core, offsetof(ib_uverbs_modify_qp, attr_mask), step.mask);
  put(core, offsetof(ib_uverbs_modify_qp, qp_state), step.state);
  put(core, offsetof(ib_uverbs_modify_qp, port_num), uint8_t{1});
  put(core, offsetof(ib_uverbs_modify_qp, qp_access_flags), uint32_t{0xf});
  put(core, offsetof(ib_uverbs_modify_qp, path_mtu), uint8_t{IBV_MTU_1024});
  put(core, offsetof(ib_uverbs_modify_qp, dest_qp_num), first_qpn_);
  put(core, offsetof(ib_uverbs_modify_qp, max_rd_atomic), uint8_t{4});
  put(core, offsetof(ib_uverbs_modify_qp, max_dest_rd_atomic), uint8_t{4});
  put(core, offsetof(ib_uverbs_modify_qp, timeout), uint8_t{5});
  put(core, offsetof(ib_uverbs_modify_qp, dest.is_global), uint8_t{1});
  put(core, offsetof(ib_uverbs_modify_qp, dest.port_num), uint8_t{1});
  put(core, offsetof(ib_uverbs_modify_qp, dest.sgid_index), uint8_t{3});
  uint8_t gid[16];
  nic_gid(*m_.fabric.nic(0, 0), 3, gid);
  for (uint32_t i = 0; i < sizeof gid; i++) {
    put(core, offsetof(ib_uverbs_modify_qp, dest.dgid) + i, gid[i]);
  }
}

// Makes one object of each kind, as programs do at their start.
void Session::world_make() {
  constexpr uint32_t kBegin[] = {
      IB_USER_VERBS_CMD_GET_CONTEXT, IB_USER_VERBS_CMD_ALLOC_PD,   IB_USER_VERBS_CMD_CREATE_CQ,
      IB_USER_VERBS_CMD_CREATE_QP,   IB_USER_VERBS_CMD_CREATE_SRQ, IB_USER_VERBS_CMD_REG_MR,
      IB_USER_VERBS_CMD_ALLOC_MW,    IB_USER_VERBS_CMD_OPEN_XRCD,  IB_USER_VERBS_CMD_CREATE_AH};
  Input plain({});
  std::swap(input_, plain);
  for (const uint32_t number : kBegin) {
    const Command& command = *command_find(number);
    Request request = template_make(command);
    if (number == IB_USER_VERBS_CMD_CREATE_QP) put(request.driver, 0, ring_of_first_qp());
    if (number == IB_USER_VERBS_CMD_CREATE_QP) put(request.driver, 8, ring_of_first_qp() + 4096);
    require(write_send(command, request) == 0, command.name);
    if (number == IB_USER_VERBS_CMD_CREATE_QP) {
      memcpy(&first_qpn_, answer_ + offsetof(ib_uverbs_create_qp_resp, qpn), sizeof first_qpn_);
    }
  }
  std::swap(input_, plain);
}

void Session::change(Request& request) {
  for (uint8_t count = input_.below(6); count > 0; count--) {
    const auto place = input_.take<uint16_t>();
    std::vector<uint8_t>& part = (place & 0x8000) != 0 ? request.driver : request.core;
    if (part.empty()) continue;
    const size_t offset = place % part.size();
    switch (place >> 13 & 3) {
      case 0:
        put(part, offset, input_.take<uint8_t>());
        break;
      case 1:
        put(part, offset & ~size_t{3}, uint32_t{input_.take<uint8_t>()});
        break;
      case 2:
        put(part, offset & ~size_t{3}, input_.take<uint32_t>());
        break;
      default:
        put(part, offset & ~size_t{7}, input_.take<uint64_t>());
    }
  }
  // Parts may be too short, or longer than any known struct.
  const uint8_t stretch = input_.take<uint8_t>();
  if ((stretch & 0xc0) == 0x40) request.core.resize(request.core.size() + (stretch & 15) * 4);
  if ((stretch & 0xc0) == 0x80) request.driver.resize(request.driver.size() + (stretch & 15) * 8);
  if ((stretch & 0xc0) == 0xc0) {
    request.core.resize(request.core.size() - std::min<size_t>(request.core.size(), stretch & 15));
  }
}

uint64_t Session::address_of(uint64_t any) const {
  const auto begin = reinterpret_cast<uint64_t>(m_.arena) - kPage;
  if (any >= begin && any < begin + kArena + 2 * kPage) return any;
  return begin + any % (kArena + 2 * kPage);
}

void Session::addresses_lead(const Command& command, Request& request) {
  const auto lead = [&](std::vector<uint8_t>& part, const std::vector<size_t>& offsets) {
    for (const size_t offset : offsets) {
      uint64_t value = 0;
      if (offset + sizeof value > part.size()) continue;
      memcpy(&value, part.data() + offset, sizeof value);
      put(part, offset, address_of(value));
    }
  };
  for (const Addresses& one : addresses()) {
    if (one.number != command.number) continue;
    lead(request.core, one.core);
    lead(request.driver, one.driver);
  }
}

int Session::write_send(const Command& command, const Request& request) {
  const size_t out = command.core_out + command.driver_out + input_.below(4) * 8u;
  const bool extended = (command.number & kExtended) != 0;
  const uint64_t response = input_.below(16) == 15 ? address_of(input_.take<uint64_t>())
                                                   : reinterpret_cast<uint64_t>(answer_);
  std::vector<uint8_t> bytes(sizeof(ib_uverbs_cmd_hdr));
  if (extended) bytes.resize(bytes.size() + sizeof(ib_uverbs_ex_cmd_hdr));
  const size_t header = bytes.size();
  bytes.insert(bytes.end(), request.core.begin(), request.core.end());
  bytes.insert(bytes.end(), request.driver.begin(), request.driver.end());
  ib_uverbs_cmd_hdr head = {.command = command.number,
                            .in_words = static_cast<uint16_t>(bytes.size() / 4),
                            .out_words = static_cast<uint16_t>(out / 4)};
  if (extended) {
    head.in_words = static_cast<uint16_t>(request.core.size() / 8);
    head.out_words = static_cast<uint16_t>((command.core_out + 7) / 8);
    const ib_uverbs_ex_cmd_hdr more = {
        .response = response,
        .provider_in_words = static_cast<uint16_t>(request.driver.size() / 8),
        .provider_out_words =
            static_cast<uint16_t>(out / 8 - std::min<size_t>(out / 8, head.out_words)),
        .cmd_hdr_reserved = 0};
    memcpy(bytes.data() + sizeof head, &more, sizeof more);
  } else if (command.core_out != 0) {
    put(bytes, header, response);
  }
  memcpy(bytes.data(), &head, sizeof head);
  return command_write(*context_, bytes.data(), bytes.size());
}

int Session::ioctl_send(const Command& command, const Request& request) {
  std::vector<uint8_t> bytes(sizeof(ib_uverbs_ioctl_hdr) + 5 * sizeof(ib_uverbs_attr));
  auto* header = reinterpret_cast<ib_uverbs_ioctl_hdr*>(bytes.data());
  uint16_t count = 0;
  const auto add = [&](uint16_t id, size_t length, uint64_t data) {
    ib_uverbs_attr& attribute = header->attrs[count++];
    attribute.attr_id = id;
    attribute.len = static_cast<uint16_t>(length);
    attribute.data = data;
  };
  const auto add_input = [&](uint16_t id, const std::vector<uint8_t>& part) {
    uint64_t data = 0;
    if (part.size() > sizeof data) {
      data = reinterpret_cast<uint64_t>(part.data());
    } else if (!part.empty()) {
      memcpy(&data, part.data(), part.size());
    }
    add(id, part.size(), data);
  };
  add(UVERBS_ATTR_WRITE_CMD, sizeof(uint64_t), command.number);
  add_input(UVERBS_ATTR_CORE_IN, request.core);
  add_input(UVERBS_ATTR_UHW_IN, request.driver);
  const uint64_t response = input_.below(16) == 15 ? address_of(input_.take<uint64_t>())
                                                   : reinterpret_cast<uint64_t>(answer_);
  add(UVERBS_ATTR_CORE_OUT, command.core_out, response);
  add(UVERBS_ATTR_UHW_OUT, command.driver_out, response + 512);
  const uint8_t spoil = input_.take<uint8_t>();
  if ((spoil & 0xf0) == 0xf0) header->attrs[spoil % 5].attr_id = input_.take<uint8_t>();
  if ((spoil & 0xf0) == 0xe0) header->attrs[spoil % 5].flags = 1;
  if ((spoil & 0xf0) == 0xd0) count = spoil % 5;
  header->length = static_cast<uint16_t>(sizeof *header + count * sizeof(ib_uverbs_attr));
  header->object_id = UVERBS_OBJECT_DEVICE;
  header->method_id = UVERBS_METHOD_INVOKE_WRITE;
  header->num_attrs = count;
  return command_ioctl(*context_, RDMA_VERBS_IOCTL, bytes.data());
}

// Sends a method of the ioctl ABI, with all or some of its attributes.
void Session::method_send() {
  static const std::vector<const Method*> all = [] {
    std::vector<const Method*> found;
    for (const auto table : {context_methods(), create_methods(), memory_methods()}) {
      for (const Method& method : table) found.push_back(&method);
    }
    return found;
  }();
  const Method& method = *all[input_.take<uint8_t>() % all.size()];
  std::vector<uint8_t> bytes(sizeof(ib_uverbs_ioctl_hdr) +
                             method.known.size() * sizeof(ib_uverbs_attr));
  auto* header = reinterpret_cast<ib_uverbs_ioctl_hdr*>(bytes.data());
  uint8_t* data = answer_;
  uint16_t count = 0;
  for (const uint16_t id : method.known) {
    const uint8_t kind = input_.below(8);
    if (kind == 0 && input_.below(4) == 0) continue;
    ib_uverbs_attr& attribute = header->attrs[count++];
    attribute.attr_id = id;
    attribute.len = sizeof(uint64_t);
    attribute.data = input_.take<uint8_t>();
    if (kind < 4) continue;
    attribute.len = kind == 4 ? sizeof(uint64_t) : input_.below(80);
    if (kind == 7) attribute.data = address_of(input_.take<uint64_t>());
    if (kind == 7) continue;
    // Copies bytes of the input; values that look like addresses are replaced by arena addresses.
    for (uint8_t* at = data; at < data + attribute.len; at += sizeof(uint64_t)) {
      uint64_t value = kind == 6 ? input_.take<uint64_t>() : input_.take<uint8_t>();
      if (value > 0xffff && value < uint64_t{1} << 47) value = address_of(value) & ~uint64_t{63};
      memcpy(at, &value, sizeof value);
    }
    attribute.data = reinterpret_cast<uint64_t>(data);
    data += 88;
  }
  header->length = static_cast<uint16_t>(sizeof *header + count * sizeof(ib_uverbs_attr));
  header->object_id = method.object;
  header->method_id = method.method;
  header->num_attrs = count;
  (void)command_ioctl(*context_, RDMA_VERBS_IOCTL, bytes.data());
}

// Sends raw bytes; commands that hold addresses are left to issue().
void Session::anything_send() {
  std::vector<uint8_t> bytes(input_.take<uint8_t>());
  input_.take(bytes.data(), bytes.size());
  uint32_t number = 0;
  if (bytes.size() >= sizeof number) memcpy(&number, bytes.data(), sizeof number);
  for (const Addresses& one : addresses()) {
    if (one.number == number) return;
  }
  put(bytes, sizeof(ib_uverbs_cmd_hdr), reinterpret_cast<uint64_t>(answer_));
  (void)command_write(*context_, bytes.data(), bytes.size());
}

void Session::issue(const Command& command) {
  Request request = template_make(command);
  change(request);
  addresses_lead(command, request);
  (void)(input_.below(3) == 0 ? ioctl_send(command, request) : write_send(command, request));
}

void Session::run() {
  if (input_.below(16) != 15) world_make();
  for (int i = 0; i < kActionsMax && !input_.ended(); i++) {
    switch (input_.below(16)) {
      case 0:
        anything_send();
        break;
      case 1:
        (void)m_.engine->drive();
        break;
      case 3:
      case 4:
        method_send();
        break;
      case 2: {  // the application writes to its memory
        const bool rings = input_.below(2) == 0;
        const size_t offset = input_.take<uint16_t>() * 8u % (rings ? 8192 : kArena - 64);
        input_.take(m_.arena + offset + (rings ? 16384 : 0), input_.below(64));
        break;
      }
      default:
        issue(command_choose());
    }
  }
  (void)m_.engine->drive();
}

}  // namespace

void commands(std::span<const uint8_t> bytes) {
  Session(bytes).run();
}

}  // namespace cxemu::fuzz
