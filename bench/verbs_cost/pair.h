// Two connected RC queue pairs of one device in this process, with their queues and memory. The
// rings are measured at one end; the other end makes the traffic come and go.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace bench {

inline constexpr uint32_t kDepth = 256;         // slots of every queue
inline constexpr uint32_t kMessage = 64;        // bytes of a WR with an SGE
inline constexpr uint32_t kInlineMessage = 32;  // bytes of an inline WR

// Prints what failed and ends the program: then there is nothing to measure.
[[noreturn]] void fail(const char* what, int error);

struct Device {
  explicit Device(const std::string& name, int gid_index);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_gid gid{};
  int gid_index = 0;
  ibv_mtu mtu = IBV_MTU_1024;
  std::vector<uint8_t> memory;
  ibv_mr* mr = nullptr;
};

enum class Interface {
  kClassic,   // ibv_create_qp, ibv_create_cq
  kBuilder,   // ibv_create_qp_ex with ibv_wr_*
  kExtended,  // ibv_create_cq_ex with ibv_start_poll
};

struct End {
  ibv_cq* send_cq = nullptr;
  ibv_cq* recv_cq = nullptr;
  ibv_cq_ex* recv_cq_ex = nullptr;  // Interface::kExtended
  ibv_qp* qp = nullptr;
  ibv_qp_ex* qp_ex = nullptr;  // Interface::kBuilder
};

class Pair {
 public:
  Pair(Device& device, Interface kind);
  ~Pair();
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;

  Device& device() { return device_; }
  End& near() { return ends_[0]; }
  End& far() { return ends_[1]; }

 private:
  void make(End& end, Interface kind);

  Device& device_;
  std::array<End, 2> ends_;
};

// The steps of connecting. Each is one verbs call and returns its errno value.
int to_init(ibv_qp* qp);
int to_rtr(const Device& device, ibv_qp* qp, uint32_t remote_qpn);
int to_rts(ibv_qp* qp);

}  // namespace bench
