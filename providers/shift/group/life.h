// One life of a group: from the making of its QP, or a reset, to the next reset. All of it is made
// new at once (Group::life_begin), so that nothing of an earlier connection can be forgotten.
//
// Each struct here is what one lock or one thread owns. What others may look at is atomic.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>

#include "fsm/fsm.h"
#include "group/device.h"
#include "group/own_requests.h"
#include "util/copyable_atomic.h"
#include "wire/names.h"

namespace shift::group {

// What the application asked for; query_qp shows it. Under Group::attr_mutex.
struct Asked {
  ibv_qp_attr attr{};
  int mask = 0;
};

// The two ends of the application's connection. Set at RTR under Group::attr_mutex, before the
// control thread, which reads them without a lock, knows of the group; they stay until the reset.
struct Ends {
  wire::QpName local{}, remote{};            // names on the control channel
  uint32_t gid_type = IBV_GID_TYPE_ROCE_V2;  // of the GID in `local`, as the application chose it
};

// What becomes of a completion that a member's CQ gives for a group's QP.
enum class Accept : uint8_t {
  kPass,   // unprotected, or the application's own doing: as it comes, QPN translated
  kGuard,  // successes are counted and delivered; a path error is held back and reported
  kDrop,   // an old epoch's, or synthesised already (C8)
};

// What becomes of completions, and what the application has not seen of a breakdown. Changed under
// both CQs' mutexes, or under Group::errors_mutex; read under one of the three.
struct Errors {
  Errors() { members[kDefault].accept = Accept::kPass; }

  struct Member {
    CopyableAtomic<Accept> accept{Accept::kDrop};
    CopyableAtomic<bool> fault_reported{false};  // an error of this path was held back and reported
  };
  PerMember<Member> members;
  // The first error that a path gave since the last switch, flushes aside: it was held back, and
  // the application gets it if the switch fails (C6).
  ibv_wc original{};  // status 0: none yet
  // The request that failed last with an error that may be the path's or the request's, and how
  // many requests had completed then.
  struct Doubt {
    uint64_t wr_id;
    uint64_t done;
    bool operator==(const Doubt&) const = default;
  };
  std::optional<Doubt> doubt;
  CopyableAtomic<bool> switching{false};  // errors of the old path are stored, not reported
};

// Empty requests of the layer's own after everything else: when they come out of a queue, all
// before them is over.
struct Markers {
  // A fence's marker of the send / receive queue was seen. Under the CQ's mutex.
  std::array<CopyableAtomic<bool>, 2> drained{};
  // A drain's, on their way through a healthy send queue (the way back).
  CopyableAtomic<int> under_way{0};
  // This drain's is posted, and was not flushed. Set under send.mutex, taken back under it or under
  // the CQ's mutex.
  CopyableAtomic<bool> posted{false};
  // A request waits for the place that a drain's takes in the send queue.
  CopyableAtomic<bool> awaited{false};
};

// The path that a group is committed to. Written by the control thread under both queues' mutexes.
struct CommittedPath {
  CopyableAtomic<int> member{kDefault};  // kNoMember between fence and choice
  int peer_member = kDefault;
  CopyableAtomic<bool> off_default{false};  // a fault is being masked
  CopyableAtomic<uint32_t> departures{0};   // how often a path was left
};

// The empty WRITE that tries a new connection.
enum class Probe : uint8_t { kNone, kPosted, kDone, kFailed };

// The QP on one member. By whoever changes the QP, under Group::modify_mutex, but for what is
// noted.
struct MemberLife {
  CopyableAtomic<bool> can_send{false};       // it has reached RTS
  CopyableAtomic<bool> last_taken{false};     // LAST_WQE_REACHED since it was connected
  CopyableAtomic<Probe> probe{Probe::kNone};  // control thread, and under the send CQ's mutex
  // Requests of our own that its connection was given before the application's; each is one packet.
  // Set back when it is connected.
  CopyableAtomic<uint32_t> own_packets{0};
  // Of the connection that we made last of it; both under Group::attr_mutex. Its start PSN; none:
  // the connection is the application's own, or there is none. The bytes of a packet.
  std::optional<uint32_t> last_psn;
  uint32_t path_mtu = 0;
  OwnRequests own;
};

// Control thread only.
struct ControlState {
  // Looked at by that thread even when it has forgotten the group, which may be reset meanwhile.
  CopyableAtomic<fsm::State> state{fsm::State::kActive};
  uint32_t epoch = 0;
  uint32_t sequence = 0;
  uint64_t peer_received = 0;
  // PSN that the peer's responder expected next on the connection our requests were posted on.
  std::optional<uint32_t> peer_responder;
  bool asks_responder = true;  // the peer wants to know ours, or has not said yet
  bool is_leader = false;      // picks the paths: the smaller of the two names
};

struct Life {
  // Never used twice in a process. What was asked for in an older life is nobody's any more.
  uint64_t serial = 0;
  Asked asked;
  Ends ends;
  Errors errors;
  Markers markers;
  CommittedPath path;
  PerMember<MemberLife> members;
  ControlState control;
  // SHIFT runs at the peer: the NIC's patience on the default path is bounded (C10). Set at RTR, on
  // the application's thread.
  bool peer_present = false;
  // The peer's default rkey -> the rkey on each of its members, as it told us. Under send.mutex.
  PerMember<std::unordered_map<uint32_t, uint32_t>> remote_keys;
  // Completed WRs of the replay whose completion must not show the stand-in's opcode. Under
  // send_cq->mutex.
  std::map<uint32_t, ibv_wc_opcode> opcode_of_signaled;
};

}  // namespace shift::group
