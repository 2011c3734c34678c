// Carrier over real RoCEv2: UDP to port 4791 between the NICs' addresses, with ICRC.
//
// Port 4791 of a NIC belongs to the first process that uses the NIC. That process passes packets
// for other processes on through a unix carrier. When it ends, one of them takes the port over; the
// transport sends again what was lost meanwhile. Every process sends its own packets.
//
// UDP would lose packets that a receiver has no room for. So a sender pauses, like a NIC on a
// lossless network: the fabric tells it how much of what was sent to a process was not received
// yet.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <memory>
#include <vector>

#include "fabric/fabric.h"
#include "nic/encapsulation.h"
#include "nic/roce.h"
#include "nic/unix_carrier.h"

namespace cxemu {

class UdpCarrier final : public Carrier {
 public:
  // Returns nullptr and errno on failure.
  static std::unique_ptr<UdpCarrier> open(FabricFile& fabric, int slot);
  ~UdpCarrier() override;

  void address_open(uint32_t ipv4_be) override;
  void address_close(uint32_t ipv4_be) override;
  uint8_t* reserve(int slot, size_t size) override;
  void commit(uint32_t src_ipv4_be, uint32_t dst_ipv4_be, size_t size, bool corrupt) override;
  bool flush() override;
  Received receive(FrameSink& sink, size_t max_bytes) override;
  int wait_fd() const override { return epoll_fd_; }
  void abandon() override;

 private:
  static constexpr uint32_t kBatch = 64;
  static constexpr size_t kPacketRoom = (kMaxPacket + kIcrcSize + 63) / 64 * 64;

  // One NIC that this process uses.
  struct Port {
    uint32_t ipv4_be;
    int users;
    int receive_fd;  // -1: another process has the port
    std::array<int, kFlowPorts> send_fd;
    std::array<uint16_t, kFlowPorts> send_port;
  };
  // Packets on their way into or out of the kernel, one buffer each.
  struct Batch {
    Batch();
    std::unique_ptr<uint8_t[]> bytes;
    std::array<mmsghdr, kBatch> message;
    std::array<iovec, kBatch> vector;
    std::array<sockaddr_in, kBatch> address;
    uint8_t* buffer(uint32_t i) const { return bytes.get() + i * kPacketRoom; }
  };
  // The last state of a process that a paused sender saw.
  struct Pause {
    uint64_t taken;
    uint64_t since_ns;  // 0: not paused
  };

  UdpCarrier(FabricFile& fabric, int slot);
  bool start();
  Port* port_find(uint32_t ipv4_be);
  void port_take(Port& port);
  void port_close(Port& port);
  // The socket of a flow, or -1; also fills in the flow's port.
  static int sender(Port& port, Flow* flow, const uint8_t* packet);
  bool paused(int slot);
  // Sends what was gathered. Returns false when something has to wait.
  bool batch_send();
  bool port_receive(Port& port, FrameSink& sink, size_t max_bytes);
  void packet_receive(const Port& port, uint32_t index, FrameSink& sink);
  void hand_on(int slot, uint32_t src_ipv4_be, uint32_t dst_ipv4_be, const uint8_t* packet,
               size_t size);

  FabricFile& fabric_;
  const int slot_;
  std::unique_ptr<UnixCarrier> unix_;  // to and from the owners of ports, and to ourselves
  int epoll_fd_ = -1;
  std::vector<Port> ports_;
  uint64_t take_ns_ = 0;  // when the ports were last tried
  std::vector<Pause> pauses_;
  Batch out_, in_;
  std::array<int, kBatch> out_fd_;
  uint32_t out_first_ = 0, out_end_ = 0;  // packets gathered and not sent yet
  enum class Reserved { kNothing, kLoop, kPacket } reserved_ = Reserved::kNothing;
  int reserved_slot_ = 0;
  bool looped_ = false;   // packets to the own process wait in unix_
  bool refused_ = false;  // reserve() had no room since the last flush()
};

}  // namespace cxemu
