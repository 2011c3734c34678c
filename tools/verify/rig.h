// Verbs objects as checks need them: a NIC that is open, memory, and one end of a connection. What
// is made here is not freed: each check runs in a process of its own, whose end frees it. A call
// that must succeed and does not throws Trouble.
#pragma once

#include <infiniband/verbs.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace shift::verify {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

inline constexpr uint8_t kPort = 1;  // the layer uses a device's first port, too
inline constexpr uint32_t kPsnMask = 0xffffff;

struct Device {
  explicit Device(const std::string& name);

  bool is_soft_roce() const { return attr.vendor_id == 0xffffff; }
  bool has_ip() const;  // its GID holds an IPv4 address
  std::string ip() const;

  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_device_attr attr{};
  ibv_port_attr port{};
  ibv_gid_entry gid{};
};

// The entry of a NIC's GID table that a program on RoCE would choose: RoCE v2, with an IPv4 address
// if there is one. False: the table has no entry.
bool gid_choose(ibv_context* context, ibv_gid_entry& chosen);
bool is_ipv4(const ibv_gid& gid);
std::string gid_text(const ibv_gid& gid);  // "192.0.2.1", or "fe80::1"

class Memory {
 public:
  Memory(Device& device, size_t size);
  uint8_t* at(size_t offset = 0) { return bytes_ + offset; }
  uint64_t address(size_t offset = 0) const { return reinterpret_cast<uint64_t>(bytes_) + offset; }
  uint32_t lkey() const { return mr_->lkey; }
  uint32_t rkey() const { return mr_->rkey; }
  double registration_ms() const { return registration_ms_; }
  void release();  // for those who want more of it than the machine has

 private:
  size_t size_;
  double registration_ms_ = 0;
  uint8_t* bytes_;
  ibv_mr* mr_;
};

// What the other end has to know of an end.
struct Address {
  uint32_t qpn = 0, psn = 0, lid = 0, mtu = IBV_MTU_256;
  ibv_gid gid{};
  bool is_global = true;

  nlohmann::json to_json() const;
  static Address from_json(const nlohmann::json& json);  // throws Trouble
};

struct Shape {
  uint32_t depth = 64;
  bool is_shared = false;    // its receives are in a shared queue
  bool has_channel = false;  // for events of its completion queues
};

// A request on an end. Remote memory is the whole of `size` bytes at `to`.
struct Request {
  uint64_t id = 0;
  ibv_wr_opcode opcode = IBV_WR_RDMA_WRITE;
  bool is_signaled = false;
  uint64_t from = 0;
  uint32_t lkey = 0, size = 0;
  uint64_t to = 0;
  uint32_t rkey = 0, imm = 0;
};

class End {
 public:
  // How long the NIC waits for an acknowledgement, as an exponent, and how often it repeats.
  struct Patience {
    uint8_t timeout = 14, retries = 6, rnr = 7;
  };

  explicit End(Device& device, const Shape& shape = {});

  // Its address, with a PSN that no earlier connection of this end has had.
  Address address();
  // Takes the end to INIT, RTR and RTS.
  void connect(const Address& peer) { connect(peer, Patience{}); }
  void connect(const Address& peer, const Patience& patience);
  void init();
  void to_rtr(const Address& peer);
  void to_rts(const Patience& patience);
  void to(ibv_qp_state state);
  ibv_qp_attr query(int mask);

  void post(const Request& request);
  void receive(uint64_t id, uint64_t address = 0, uint32_t lkey = 0, uint32_t size = 0);

  // Polls until `is_over` says so of all that has come, or time is over.
  using IsOver = std::function<bool(const std::vector<ibv_wc>&)>;
  static std::vector<ibv_wc> poll(ibv_cq* cq, milliseconds patience, const IsOver& is_over);
  // The completion of one request; throws Trouble unless it is a success.
  ibv_wc complete(ibv_cq* cq, milliseconds patience = std::chrono::seconds(2));

  Device& device;
  ibv_comp_channel* channel = nullptr;
  ibv_cq *send_cq = nullptr, *recv_cq = nullptr;
  ibv_srq* srq = nullptr;
  ibv_qp* qp = nullptr;
  uint32_t psn;  // its start PSN
};

inline void connect(End& a, End& b) {
  const Address to_a = a.address(), to_b = b.address();
  a.connect(to_b);
  b.connect(to_a);
}

int mtu_bytes(uint32_t mtu);
// A random number, which need not be secret.
uint32_t dice();
double ms_since(Clock::time_point start);

}  // namespace shift::verify
