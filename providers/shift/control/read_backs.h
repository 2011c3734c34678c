// The sessions whose QP is connected to itself: before traffic of their context takes a path, they
// must know (group/read_back.h). Only the control loop uses this.
#pragma once

#include <vector>

#include "control/session.h"
#include "group/read_back.h"

namespace shift::control {

class ReadBacks {
 public:
  void add(Session& session) {
    if (session.is_self) sessions_.push_back(&session);
  }
  void forget(const Session& session) { std::erase(sessions_, &session); }
  // Called before a group of the context is committed to the member.
  void begin(const group::Context* context, int member) const {
    for (Session* session : sessions_) {
      if (session->group.context == context) group::read_back_begin(session->group, member);
    }
  }

 private:
  std::vector<Session*> sessions_;
};

}  // namespace shift::control
