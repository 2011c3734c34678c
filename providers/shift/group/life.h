// One life of a group: from the creation of its QP, or a reset, to the next reset. All of it is
// made new at once (Group::life_begin), so that no trace of an earlier connection can be left.
//
// Each struct here belongs to one lock or one thread. What other threads read is atomic.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "fsm/fsm.h"
#include "group/device.h"
#include "group/own_requests.h"
#include "util/copyable_atomic.h"
#include "wire/names.h"

namespace shift::group {

// The attributes that the application has asked for; query_qp shows them. Under Group::attr_mutex.
struct Asked {
  ibv_qp_attr attr{};
  int mask = 0;
};

// The two ends of the application's connection. Set at RTR under Group::attr_mutex, before the
// control thread knows of the group; that thread reads them without a lock. They stay until the
// reset.
struct Ends {
  wire::QpName local{}, remote{};            // the names on the control channel
  uint32_t gid_type = IBV_GID_TYPE_ROCE_V2;  // of the GID in `local`, as the application chose it
};

// What the layer does with a completion that a member's CQ gives for the QP of a group.
enum class Accept : uint8_t {
  kPass,   // unprotected, or after the application's own error: only the QPN is translated
  kGuard,  // successes are counted and delivered; a path error is held back and reported
  kDrop,   // it is of an old epoch, or the layer has already made its completion (C8)
};

// What the layer does with completions, and the errors that the application has not seen. Changed
// under both CQs' mutexes, or under one of them and Group::errors_mutex; so who holds both CQs'
// mutexes is alone. Read under any of the three.
struct Errors {
  Errors() { members[kDefault].accept = Accept::kPass; }

  struct Member {
    CopyableAtomic<Accept> accept{Accept::kDrop};
    CopyableAtomic<bool> fault_reported{false};  // an error of this path was held back and reported
  };
  PerMember<Member> members;
  // The first error that a path gave since the last switch, flushes aside. It is held back, and the
  // application gets it if the group fails (C6).
  ibv_wc original{};  // status 0: there is none yet
  // The request that last failed with an error for which the path or the request itself may be to
  // blame, and how many requests had completed before.
  struct Doubt {
    uint64_t wr_id;
    uint64_t done;
    bool operator==(const Doubt&) const = default;
  };
  std::optional<Doubt> doubt;
  // What fail() still has to give: these errors, to a batch that a thread was building on the hot
  // path. `position` is the batch's place in the journal. Under send.mutex.
  struct Owed {
    uint64_t position;
    ibv_wc_status status;
    uint32_t vendor_error;
    bool operator==(const Owed&) const = default;
  };
  std::optional<Owed> owed;
  // fail() has given the errors, so no completion is to be expected. Under the CQs' mutexes.
  bool are_given = false;
  // The layer keeps requests or receives that the path's NIC has refused. No NIC gives their
  // completions.
  CopyableAtomic<bool> keeps_refused{false};
  // The error completions that the send CQ has given for the committed path's QP, without the
  // layer's own requests (group/flushed.h). Under that CQ's mutex.
  struct Flushed {
    uint64_t wr_id;
    bool is_shared;  // a receive of a shared queue
    bool operator==(const Flushed&) const = default;
  };
  std::vector<Flushed> flushed;
  CopyableAtomic<bool> switching{
      false};  // in a fence: errors of the old path are stored, not reported
};

// Markers: empty requests of the layer's own that are posted after everything else. When a marker
// comes out of a queue, everything before it is over.
struct Markers {
  // The fence has seen its marker of the send queue [0] or the receive queue [1], or needs none
  // there. The fence sets them back before it posts; they become true under the CQ's mutex.
  std::array<CopyableAtomic<bool>, 2> drained{};
  // The fence's marker of the send queue has come out as a success: the QP still works.
  CopyableAtomic<bool> passed{false};
  // Markers of drains that are on their way through a healthy send queue (the way back).
  CopyableAtomic<int> under_way{0};
  // The marker of the current drain is posted, and was not flushed. Set under send.mutex; taken
  // back under send.mutex or the CQ's mutex.
  CopyableAtomic<bool> posted{false};
  // A request waits for the place that a drain's marker takes in the send queue.
  CopyableAtomic<bool> awaited{false};
};

// The path that a group is committed to. The control thread writes `member` and `peer_member`: a
// fence under both CQs' mutexes, while the queues are parked, and commit() under both queues'
// mutexes, too. The other two are under send.mutex.
struct CommittedPath {
  CopyableAtomic<int> member{kDefault};  // kNoMember between the fence and the choice of a path
  int peer_member = kDefault;
  CopyableAtomic<bool> off_default{false};  // the hot path is barred: mostly, a fault is masked
  CopyableAtomic<uint32_t> departures{0};   // how often the group has left a path
};

// How far the probe of a new connection is, which is an empty WRITE.
enum class Probe : uint8_t { kNone, kPosted, kDone, kFailed };

// The state of one member's QP. The thread that changes the QP writes it under Group::modify_mutex,
// unless a comment says otherwise.
struct MemberLife {
  CopyableAtomic<bool> can_send{false};  // the QP has reached RTS
  // LAST_WQE_REACHED has come since the QP was connected. The control thread writes it, too.
  CopyableAtomic<bool> last_taken{false};
  CopyableAtomic<Probe> probe{Probe::kNone};  // control thread, and under the send CQ's mutex
  // The layer's own requests that the connection was given before the application's; each is one
  // packet. Zero again when the QP is connected.
  CopyableAtomic<uint32_t> own_packets{0};
  // About the last connection that the layer has made of this QP; under Group::attr_mutex.
  // `last_psn` is its start PSN; nullopt: the connection is the application's own, or there is
  // none. `path_mtu` is the number of bytes in a packet.
  std::optional<uint32_t> last_psn;
  // The last PSN that packets may have: what the connection had got to, or the start PSN that was
  // given out since; nullopt: neither was noted since the QP was connected. Under
  // Group::attr_mutex, too.
  std::optional<uint32_t> reached_psn;
  uint32_t path_mtu = 0;
  OwnRequests own;
};

// Used on the control thread only.
struct ControlState {
  // The control thread looks at it even when it has forgotten the group, and the group may be reset
  // meanwhile.
  CopyableAtomic<fsm::State> state{fsm::State::kActive};
  uint32_t epoch = 0;
  uint32_t sequence = 0;
  uint64_t peer_received = 0;
  // The PSN that the peer's responder expected next, on the connection that carried this end's
  // requests.
  std::optional<uint32_t> peer_responder;
  bool asks_responder = true;  // the peer wants to know this end's PSN, or has not said yet
  bool is_leader = false;      // this end picks the paths: its name is the smaller of the two
};

struct Life {
  // Never used twice in a process. What was asked for in an older life has no receiver any more.
  uint64_t serial = 0;
  Asked asked;
  Ends ends;
  Errors errors;
  Markers markers;
  CommittedPath path;
  PerMember<MemberLife> members;
  ControlState control;
  // The control thread has forgotten the group, so nobody asks the peer for keys, and nobody posts
  // later what waits.
  CopyableAtomic<bool> is_alone{false};
  // The QP is connected to itself. Set by the control thread when it gets to know the group.
  CopyableAtomic<bool> is_self{false};
  // SHIFT runs at the peer, so the NIC's patience on the default path is bounded (C10). Set at RTR,
  // on the application's thread.
  bool peer_present = false;
  // The default's NIC has refused to connect the QP, since it or the way to the peer is broken. Its
  // QP is in INIT, and the group begins on another path as soon as it can send. Set on the
  // application's thread, before the control thread knows of the group.
  CopyableAtomic<bool> unconnected{false};
  // Maps, for each member of the peer, the default rkey to the rkey on that member, as the peer has
  // answered. Under send.mutex.
  PerMember<std::unordered_map<uint32_t, uint32_t>> remote_keys;
  // Stand-ins of the replay that are signaled: their completions must show the opcode of the
  // application's request. Under send_cq->mutex.
  std::map<uint32_t, ibv_wc_opcode> opcode_of_signaled;
};

}  // namespace shift::group
