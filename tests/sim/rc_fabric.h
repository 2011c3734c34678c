// The fabric between fake NICs. It carries out the requests of one pair of groups as RC connections
// do, packet by packet in virtual time. A request is executed when its last packet arrives and
// completes when the acknowledgement arrives. Packets may be late, lost, or repeated by the NIC
// that sent them. A packet that arrives after its sender has left the path still takes effect,
// until the receiving QP is in ERR or connected again.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>

#include "group/test/fake.h"
#include "net/test/virtual_loop.h"

namespace shift::sim {

using net::VirtualTime;
using Duration = net::Loop::Clock::duration;

inline constexpr uint32_t kMtu = 1024;  // the MTU of all connections

// One packet of a request. A READ has one packet, which takes as many PSNs as its answer has
// packets.
struct Packet {
  int host, member;  // where it was sent
  uint32_t source, destination;
  wire::Gid from, to;
  uint32_t psn, index;  // the connection's start PSN; this packet's distance from it
  uint32_t numbers;     // how many PSNs it takes
  uint32_t part, parts;
  ibv_send_wr wr;
  ibv_sge sge;  // of the whole request

  bool is_last() const { return part + 1 == parts; }
};

// An observer sees what the fabric does; the judge is one.
class Observer {
 public:
  virtual void fault_seen(const char* rule, const Packet* packet, int host, int member) = 0;
  // A packet takes effect at host 1 - packet.host. The last packet of a notification comes with the
  // receive that it takes. Returns what a READ or an atomic finds.
  virtual uint64_t executed(const Packet& packet, const group::PostedRecv* receive) = 0;
  // Returns what a READ finds when it is answered once more.
  virtual uint64_t read_again(const Packet& packet) = 0;
  // The data of a READ or an atomic arrives at the host that posted it.
  virtual void data_came(const Packet& packet, uint64_t data) = 0;

 protected:
  ~Observer() = default;
};

class RcFabric {
 public:
  static constexpr std::chrono::milliseconds kRepeat{
      4};                             // packets without an answer are sent again
  static constexpr int kRepeats = 4;  // after so many repeats the QP breaks
  static constexpr std::chrono::milliseconds kNotReady{2};

  // How long a packet or its answer takes.
  std::function<Duration()> delay = [] { return std::chrono::microseconds(5); };

  RcFabric(VirtualTime& time, Observer& observer) : time_(time), observer_(observer) {}
  void end_set(int host, group::World& world, group::Group& group) {
    worlds_[static_cast<size_t>(host)] = &world;
    groups_[static_cast<size_t>(host)] = &group;
  }

  // Loses all packets from a member of `host` to a member of the other host.
  void block(int host, int from, int to, bool blocked);
  // Whether packets of both directions pass between member `a` of host 0 and `b` of host 1.
  bool carries(int a, int b) const;
  // The process of this host is gone, and its QPs with it.
  void host_kill(int host) { dead_[static_cast<size_t>(host)] = true; }

  // Looks at what was posted and connected since the last call. It must be called after each step.
  void look();

 private:
  using Qp = group::FakeQp;

  // The fabric's state of each QP. Packets are counted from the connection's first one.
  struct End {
    size_t walked = 0;        // how many of the QP's states were seen
    uint32_t connection = 0;  // counts resets; what belongs to an older one is dropped
    // As requester: the first packet of the oldest pending request, the first packet that is not
    // acknowledged, and the first that is not sent.
    uint32_t base = 0, acked = 0, next = 0;
    uint64_t answered = 0;  // bit index % 64: the data of this READ or atomic came
    int repeats = 0;
    VirtualTime::Clock::time_point progress{};
    bool timer = false;
    bool waits = false;  // for receives at the responder
    // As responder: the next packet, and what each atomic found, in case that it is sent again.
    uint32_t expected = 0;
    std::map<uint32_t, uint64_t> found;
    size_t sends_seen = 0, receives_seen = 0;
    bool fenced = false;
    // What there was after the last look. While nothing is different there is nothing to do.
    struct Seen {
      size_t walked = 0, sends = 0, receives = 0, pending = 0;
      uint32_t base = 0, next = 0;
      ibv_qp_state state = IBV_QPS_RESET;
      bool operator==(const Seen&) const = default;
    } seen;
  };

  group::FakeNic& nic(int host, int member) const {
    return worlds_[static_cast<size_t>(host)]->nic(member);
  }
  End& end(int host, int member) { return ends_[static_cast<size_t>(host)][member]; }
  // Returns null until the QP is made.
  Qp* qp(int host, int member) const {
    ibv_qp* real = groups_[static_cast<size_t>(host)]->real[member];
    return real == nullptr ? nullptr : &Qp::of(real);
  }
  int member_of(int host, const wire::Gid& gid) const;
  bool blocked(int host, int from, int to) const {
    return blocked_[static_cast<size_t>(host)][from][to];
  }
  void look_at(int host, int member, Qp& qp);
  void check_posted(int host, int member, Qp& qp, End& end);

  // These functions are in rc_requester.cc.
  void send_more(int host, int member, Qp& qp, End& end);
  void transmit(int host, int member, Qp& qp, End& end, Packet packet);
  void timer_arm(int host, int member, End& end);
  void timer_fired(int host, int member, uint32_t connection);
  enum class Answer : uint8_t { kAck, kNotReady };
  void answered(const Packet& packet, uint32_t connection, Answer kind, uint64_t data);
  void complete(Qp& qp, End& end);

  // These functions are in rc_responder.cc.
  void arrive(const Packet& packet, uint32_t connection);
  bool execute(const Packet& packet, int member, Qp& qp, End& end, uint64_t* data);
  const group::PostedRecv* receive_take(const Packet& packet, Qp& qp);
  void answer(const Packet& packet, int from, uint32_t connection, Answer kind, uint64_t data);

  VirtualTime& time_;
  Observer& observer_;
  std::array<group::World*, 2> worlds_{};
  std::array<group::Group*, 2> groups_{};
  std::array<bool, 2> dead_{};
  std::array<group::PerMember<End>, 2> ends_{};
  std::array<group::PerMember<group::PerMember<bool>>, 2> blocked_{};
};

}  // namespace shift::sim
