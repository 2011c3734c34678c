// The QP that a group has on each member, as control/ sees it: the command thread makes it, and it
// is connected for at most one path at a time. Each session has one of these objects, which only
// the control loop uses.
#pragma once

#include <functional>

#include "control/input.h"
#include "group/group.h"
#include "wire/messages.h"

namespace shift::control {

class Jobs;
class NicWatch;

struct MemberQp {
  bool is_asked = false;  // the command thread makes it, has made it, or could not
  bool made = false;
  bool failed = false;
  bool busy = false;  // a job of the command thread is under way
  bool connected = false;
  Connection connection;    // the connection that the QP has, or had last
  wire::QpAddress address;  // as the peer knows it for that connection
};

class MemberQps {
 public:
  MemberQps(Session& session, Jobs& jobs, const NicWatch& nics)
      : session_(session), jobs_(jobs), nics_(nics) {}

  MemberQp& operator[](int member) { return qps_[member]; }

  // Has the command threads make the QPs that the group has from the start: all of a small group's,
  // else none but the default.
  void make();
  // Has the command thread make the member's QP, if it was not asked before. The session's paths go
  // on with it as soon as it is made.
  void want(int member);
  // Has the group's memory registered on all members that the group has QPs on, because it may
  // leave its path for one of them.
  void want_memory();
  // Whether the member has no QP and will get none.
  bool lacks(int member) const;
  // Whether traffic can go on over this connection of the member's QP.
  bool carries(int member, const Connection& connection) const;

  // The command thread's answer: an errno, and where the peer can reach the QP.
  struct Address {
    int error = 0;
    wire::QpAddress address;
  };
  using Chosen = std::function<void(Session& session, const Address& own)>;
  using Connected = std::function<void(Session& session, int error)>;
  // Has the command thread choose an address for the member's end of the path.
  void choose_address(int member, PathName path, Chosen then);
  // Has the command thread connect the QP between `own`, which was chosen for it, and the peer's.
  void connect(int member, const wire::QpAddress& own, const wire::QpAddress& peer, Connected then);
  // Has the command thread do both in one job.
  void choose_and_connect(int member, PathName path, const wire::QpAddress& peer, Chosen then);

 private:
  // `peer`: the address that the other end uses; all zeros: it has not told yet.
  void path_wants_memory(int member);
  wire::Gid own_gid(int member, PathName path, const wire::Gid& peer = {}) const;

  Session& session_;
  Jobs& jobs_;
  const NicWatch& nics_;
  group::PerMember<MemberQp> qps_;
};

}  // namespace shift::control
