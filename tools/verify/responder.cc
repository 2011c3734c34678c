// Checks of what the receiving end tells: how far it got, that it takes no more from a shared
// queue, and that data is there when its notification is.
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "rig.h"
#include "topics.h"
#include "trouble.h"
#include "wire.h"

namespace shift::verify {
namespace {

constexpr milliseconds kEventPatience{1000};

}  // namespace

Outcome check_rq_psn(const Subject& subject) {
  Device device(subject.nic);
  Memory memory(device, 65536);
  End end(device), peer(device);
  connect(end, peer);
  const auto mtu = static_cast<uint32_t>(mtu_bytes(device.port.active_mtu));
  const auto run = [&](ibv_wr_opcode opcode, uint32_t size) {
    end.post({.opcode = opcode,
              .is_signaled = true,
              .from = memory.address(),
              .lkey = memory.lkey(),
              .size = size,
              .to = memory.address(32768),
              .rkey = memory.rkey()});
    end.complete(end.send_cq);
  };
  // A READ takes the numbers of its response's packets.
  peer.receive(1, memory.address(16384), memory.lkey(), 64);
  run(IBV_WR_RDMA_WRITE, 2 * mtu + 1);
  run(IBV_WR_SEND, 64);
  run(IBV_WR_RDMA_READ, mtu + 1);
  run(IBV_WR_RDMA_WRITE, 0);
  constexpr uint32_t kPackets = 3 + 1 + 2 + 1;
  peer.to(IBV_QPS_ERR);
  const ibv_qp_attr told = peer.query(IBV_QP_STATE | IBV_QP_RQ_PSN);
  if (told.qp_state != IBV_QPS_ERR) return failure("a QP in ERR says that it is in another state");
  const uint32_t count = (told.rq_psn - end.psn) & kPsnMask;
  if (count != kPackets) {
    return failure(
        text("%u packets were executed, and ibv_query_qp's rq_psn says %u", kPackets, count));
  }
  return ok(
      text("rq_psn counts each of %u packets of WRITE, SEND and READ, in ERR, too", kPackets));
}

Outcome check_last_wqe(const Subject& subject) {
  Device device(subject.nic);
  End end(device), peer(device, {.is_shared = true});
  connect(end, peer);
  peer.receive(1);
  end.post({.id = 1, .opcode = IBV_WR_SEND, .is_signaled = true});
  end.complete(end.send_cq);
  peer.receive(2);
  const int fd = device.context->async_fd;
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  const auto start = Clock::now();
  peer.to(IBV_QPS_ERR);
  while (ms_since(start) < static_cast<double>(kEventPatience.count())) {
    pollfd one{fd, POLLIN, 0};
    if (::poll(&one, 1, 10) != 1) continue;
    ibv_async_event event;
    if (ibv_get_async_event(device.context, &event) != 0) continue;
    const bool is_it =
        event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED && event.element.qp == peer.qp;
    ibv_ack_async_event(&event);
    if (is_it) return ok(text("LAST_WQE_REACHED came %.1f ms after ERR", ms_since(start)));
  }
  const char* const seen = "LAST_WQE_REACHED did not come within a second after ERR";
  if (!device.is_soft_roce()) return failure(seen);
  return coped_with(
      seen,
      "This is soft-RoCE, whose QPs the layer resets in its place: all QPs of a shared "
      "queue leave a NIC together, and SHIFT_MODE=exact knows less.");
}

namespace {

constexpr uint32_t kMessages = 256, kWindow = 16, kSlot = 16384;

uint8_t pattern(uint32_t message, uint32_t offset) {
  return static_cast<uint8_t>(message * 31 + offset * 7 + (offset >> 8));
}

// What the receiver found wrong, if it still says so.
std::string wrong_of(Wire& wire) try {
  return wire.hear().value("wrong", std::string());
} catch (const Trouble&) {
  return "";
}

}  // namespace

// The sender. Each message is a WRITE and, after it, a WRITE with immediate of its last byte.
Outcome ask_write_order(const Subject& subject, Wire& wire) {
  Device device(subject.nic);
  Memory memory(device, kWindow * kSlot);
  End end(device);
  wire.say({{"address", end.address().to_json()}});
  const auto peer = wire.hear();
  end.connect(Address::from_json(peer.at("address")));
  const uint64_t to = peer.value("memory", uint64_t{0});
  const uint32_t rkey = peer.value("rkey", 0u);
  wire.say({{"ready", true}});
  wire.hear();
  for (uint32_t base = 0; base < kMessages; base += kWindow) {
    for (uint32_t message = base; message < base + kWindow; message++) {
      const uint64_t at = message % kWindow * kSlot;
      for (uint32_t i = 0; i < kSlot; i++) memory.at(at)[i] = pattern(message, i);
      Request write{.id = message,
                    .from = memory.address(at),
                    .lkey = memory.lkey(),
                    .size = kSlot - 1,
                    .to = to + at,
                    .rkey = rkey};
      end.post(write);
      write.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
      write.is_signaled = true;
      write.from += kSlot - 1;
      write.to += kSlot - 1;
      write.size = 1;
      write.imm = message;
      end.post(write);
    }
    const auto done = End::poll(end.send_cq, std::chrono::seconds(5),
                                [](const auto& all) { return all.size() == kWindow; });
    // A receiver that finds something wrong says so and ends.
    const auto bad =
        std::ranges::find_if(done, [](const ibv_wc& one) { return one.status != IBV_WC_SUCCESS; });
    if (bad != done.end() || done.size() != kWindow) {
      const std::string why = wrong_of(wire);
      if (!why.empty()) return failure(why);
      return failure(bad != done.end()
                         ? std::string("a WRITE fails: ") + ibv_wc_status_str(bad->status)
                         : "WRITEs with immediate do not complete within 5 s");
    }
    // The receiver looks at this window before the next one is written over it.
    const auto seen = wire.hear();
    if (seen.contains("wrong")) return failure(seen.value("wrong", std::string()));
    wire.say({{"next", true}});
  }
  return ok(text("%u notifications came in order, each after its data", kMessages));
}

void answer_write_order(const Subject& subject, Wire& wire) {
  Device device(subject.nic);
  Memory memory(device, kWindow * kSlot);
  End end(device);
  const Address own = end.address();
  const auto peer = wire.hear();
  end.connect(Address::from_json(peer.at("address")));
  for (uint32_t i = 0; i < kWindow; i++) end.receive(i);
  wire.say({{"address", own.to_json()}, {"memory", memory.address()}, {"rkey", memory.rkey()}});
  wire.hear();
  wire.say({{"ready", true}});
  std::string wrong;
  for (uint32_t expected = 0; expected < kMessages;) {
    const auto got = End::poll(end.recv_cq, std::chrono::seconds(5),
                               [](const auto& all) { return !all.empty(); });
    if (got.empty() && wrong.empty()) wrong = "a notification does not come within 5 s";
    for (const ibv_wc& one : got) {
      const uint32_t imm = ntohl(one.imm_data);
      const uint8_t* slot = memory.at(expected % kWindow * kSlot);
      if (one.status != IBV_WC_SUCCESS && wrong.empty()) wrong = "a receive fails";
      if (imm != expected && wrong.empty())
        wrong = text("notification %u came where %u had to", imm, expected);
      for (uint32_t i = 0; i < kSlot && wrong.empty(); i++) {
        if (slot[i] != pattern(expected, i))
          wrong = text("notification %u came before byte %u of its data", expected, i);
      }
      if (wrong.empty()) end.receive(expected);
      expected++;
    }
    if (!wrong.empty()) return wire.say({{"wrong", wrong}});
    if (expected % kWindow != 0) continue;
    wire.say({{"seen", expected}});
    wire.hear();
  }
}

}  // namespace shift::verify
