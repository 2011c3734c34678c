#include "rig.h"

#include <arpa/inet.h>
#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>

#include "trouble.h"

namespace shift::verify {
namespace {

constexpr int kGidsMax = 256;
constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

ibv_context* open_named(const std::string& name) {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  require(list != nullptr, "ibv_get_device_list", errno);
  ibv_context* context = nullptr;
  int error = ENODEV;
  for (int i = 0; i < count; i++) {
    if (name != ibv_get_device_name(list[i])) continue;
    context = ibv_open_device(list[i]);
    error = errno;
  }
  ibv_free_device_list(list);
  require(context != nullptr, "ibv_open_device(" + name + ")", error);
  return context;
}

}  // namespace

bool is_ipv4(const ibv_gid& gid) {
  const auto* address = reinterpret_cast<const in6_addr*>(gid.raw);
  return IN6_IS_ADDR_V4MAPPED(address);
}

std::string gid_text(const ibv_gid& gid) {
  char out[INET6_ADDRSTRLEN] = "";
  if (is_ipv4(gid)) {
    inet_ntop(AF_INET, gid.raw + 12, out, sizeof out);
  } else {
    inet_ntop(AF_INET6, gid.raw, out, sizeof out);
  }
  return out;
}

bool gid_choose(ibv_context* context, ibv_gid_entry& chosen) {
  std::vector<ibv_gid_entry> table(kGidsMax);
  const ssize_t count = ibv_query_gid_table(context, table.data(), table.size(), 0);
  int best = -1;
  for (ssize_t i = 0; i < count; i++) {
    const ibv_gid_entry& one = table[static_cast<size_t>(i)];
    if (one.port_num != kPort) continue;
    const int worth = (one.gid_type == IBV_GID_TYPE_ROCE_V2 ? 2 : 0) + (is_ipv4(one.gid) ? 1 : 0);
    if (worth <= best) continue;
    best = worth;
    chosen = one;
  }
  return best >= 0;
}

Device::Device(const std::string& name) : context(open_named(name)) {
  succeed(ibv_query_device(context, &attr), "ibv_query_device(" + name + ")");
  succeed(ibv_query_port(context, kPort, &port), "ibv_query_port(" + name + ")");
  require(gid_choose(context, gid), name + " has no GID", ENOENT);
  pd = ibv_alloc_pd(context);
  require(pd != nullptr, "ibv_alloc_pd", errno);
}

bool Device::has_ip() const {
  return is_ipv4(gid.gid);
}

std::string Device::ip() const {
  return gid_text(gid.gid);
}

Memory::Memory(Device& device, size_t size) : size_(size) {
  void* pages = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  require(pages != MAP_FAILED, "mmap", errno);
  bytes_ = static_cast<uint8_t*>(pages);
  const auto start = Clock::now();
  mr_ = ibv_reg_mr(device.pd, bytes_, size, kAccess);
  registration_ms_ = ms_since(start);
  require(mr_ != nullptr, "ibv_reg_mr", errno);
}

void Memory::release() {
  succeed(ibv_dereg_mr(mr_), "ibv_dereg_mr");
  munmap(bytes_, size_);
}

nlohmann::json Address::to_json() const {
  return {{"qpn", qpn},
          {"psn", psn},
          {"lid", lid},
          {"mtu", mtu},
          {"is_global", is_global},
          {"gid", std::vector<int>(gid.raw, gid.raw + sizeof gid.raw)}};
}

Address Address::from_json(const nlohmann::json& json) try {
  Address made;
  made.qpn = json.at("qpn").get<uint32_t>();
  made.psn = json.at("psn").get<uint32_t>() & kPsnMask;
  made.lid = json.at("lid").get<uint16_t>();
  made.mtu = json.at("mtu").get<uint32_t>();
  made.is_global = json.at("is_global").get<bool>();
  const auto gid = json.at("gid").get<std::vector<uint8_t>>();
  if (gid.size() != sizeof made.gid.raw || made.mtu < IBV_MTU_256 || made.mtu > IBV_MTU_4096)
    throw Trouble("the other end gives no address of a QP");
  std::memcpy(made.gid.raw, gid.data(), gid.size());
  return made;
} catch (const nlohmann::json::exception&) {
  throw Trouble("the other end gives no address of a QP");
}

End::End(Device& on, const Shape& shape) : device(on), psn(dice() & kPsnMask) {
  if (shape.has_channel) {
    channel = ibv_create_comp_channel(device.context);
    require(channel != nullptr, "ibv_create_comp_channel", errno);
  }
  const auto entries = static_cast<int>(shape.depth * 2);
  send_cq = ibv_create_cq(device.context, entries, nullptr, channel, 0);
  require(send_cq != nullptr, "ibv_create_cq", errno);
  recv_cq = ibv_create_cq(device.context, entries, nullptr, channel, 0);
  require(recv_cq != nullptr, "ibv_create_cq", errno);
  if (shape.is_shared) {
    ibv_srq_init_attr init{};
    init.attr.max_wr = shape.depth;
    init.attr.max_sge = 1;
    srq = ibv_create_srq(device.pd, &init);
    require(srq != nullptr, "ibv_create_srq", errno);
  }
  ibv_qp_init_attr init{};
  init.send_cq = send_cq;
  init.recv_cq = recv_cq;
  init.srq = srq;
  init.cap.max_send_wr = shape.depth;
  init.cap.max_recv_wr = srq == nullptr ? shape.depth : 0;
  init.cap.max_send_sge = init.cap.max_recv_sge = 1;
  init.qp_type = IBV_QPT_RC;
  qp = ibv_create_qp(device.pd, &init);
  require(qp != nullptr, "ibv_create_qp", errno);
}

Address End::address() {
  psn = (psn + (1u << 22) + (dice() & 0xfffff)) & kPsnMask;
  Address own;
  own.qpn = qp->qp_num;
  own.psn = psn;
  own.lid = device.port.lid;
  own.mtu = device.port.active_mtu;
  own.gid = device.gid.gid;
  own.is_global = device.port.link_layer == IBV_LINK_LAYER_ETHERNET;
  return own;
}

void End::to(ibv_qp_state state) {
  ibv_qp_attr attr{};
  attr.qp_state = state;
  succeed(ibv_modify_qp(qp, &attr, IBV_QP_STATE),
          state == IBV_QPS_ERR ? "ibv_modify_qp to ERR" : "ibv_modify_qp to RESET");
}

void End::init() {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = kPort;
  attr.qp_access_flags = kAccess;
  const int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  succeed(ibv_modify_qp(qp, &attr, mask), "ibv_modify_qp to INIT");
}

void End::to_rtr(const Address& peer) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = std::min(device.port.active_mtu, static_cast<ibv_mtu>(peer.mtu));
  attr.dest_qp_num = peer.qpn;
  attr.rq_psn = peer.psn;
  attr.max_dest_rd_atomic = 1;
  attr.min_rnr_timer = 12;
  attr.ah_attr.port_num = kPort;
  attr.ah_attr.dlid = static_cast<uint16_t>(peer.lid);
  if (peer.is_global) {
    attr.ah_attr.is_global = 1;
    attr.ah_attr.grh.dgid = peer.gid;
    attr.ah_attr.grh.sgid_index = static_cast<uint8_t>(device.gid.gid_index);
    attr.ah_attr.grh.hop_limit = 64;
  }
  const int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  succeed(ibv_modify_qp(qp, &attr, mask), "ibv_modify_qp to RTR");
}

void End::to_rts(const Patience& patience) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTS;
  attr.sq_psn = psn;
  attr.timeout = patience.timeout;
  attr.retry_cnt = patience.retries;
  attr.rnr_retry = patience.rnr;
  attr.max_rd_atomic = 1;
  const int mask = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                   IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
  succeed(ibv_modify_qp(qp, &attr, mask), "ibv_modify_qp to RTS");
}

void End::connect(const Address& peer, const Patience& patience) {
  init();
  to_rtr(peer);
  to_rts(patience);
}

ibv_qp_attr End::query(int mask) {
  ibv_qp_attr attr{};
  ibv_qp_init_attr unused{};
  succeed(ibv_query_qp(qp, &attr, mask, &unused), "ibv_query_qp");
  return attr;
}

void End::post(const Request& request) {
  ibv_sge piece{request.from, request.size, request.lkey};
  ibv_send_wr wr{}, *bad = nullptr;
  wr.wr_id = request.id;
  wr.opcode = request.opcode;
  wr.send_flags = request.is_signaled ? IBV_SEND_SIGNALED : 0;
  wr.imm_data = htonl(request.imm);
  wr.sg_list = &piece;
  wr.num_sge = request.size != 0 ? 1 : 0;
  wr.wr.rdma.remote_addr = request.to;
  wr.wr.rdma.rkey = request.rkey;
  succeed(ibv_post_send(qp, &wr, &bad), "ibv_post_send");
}

void End::receive(uint64_t id, uint64_t address, uint32_t lkey, uint32_t size) {
  ibv_sge piece{address, size, lkey};
  ibv_recv_wr wr{}, *bad = nullptr;
  wr.wr_id = id;
  wr.sg_list = &piece;
  wr.num_sge = size != 0 ? 1 : 0;
  succeed(srq != nullptr ? ibv_post_srq_recv(srq, &wr, &bad) : ibv_post_recv(qp, &wr, &bad),
          "ibv_post_recv");
}

std::vector<ibv_wc> End::poll(ibv_cq* cq, milliseconds patience, const IsOver& is_over) {
  const auto deadline = Clock::now() + patience;
  std::vector<ibv_wc> all;
  do {
    ibv_wc some[16];
    const int count = ibv_poll_cq(cq, 16, some);
    require(count >= 0, "ibv_poll_cq", EIO);
    all.insert(all.end(), some, some + count);
    if (count == 0) sched_yield();
  } while (!is_over(all) && Clock::now() < deadline);
  return all;
}

ibv_wc End::complete(ibv_cq* cq, milliseconds patience) {
  const auto got = poll(cq, patience, [](const auto& all) { return !all.empty(); });
  if (got.empty()) throw Trouble("a request on a healthy connection has no completion");
  if (got.front().status != IBV_WC_SUCCESS) {
    throw Trouble(std::string("a request on a healthy connection fails: ") +
                  ibv_wc_status_str(got.front().status));
  }
  return got.front();
}

int mtu_bytes(uint32_t mtu) {
  return 128 << mtu;
}

uint32_t dice() {
  static std::mt19937 generator{std::random_device{}()};
  return static_cast<uint32_t>(generator());
}

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

}  // namespace shift::verify
