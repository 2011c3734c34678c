// A QP of the layer's own that tries a way between two NICs with empty WRITEs, or that answers such
// WRITEs. It stands on a protection domain without any memory, so nobody can reach memory through
// it.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "wire/messages.h"

namespace shift::group {

struct Context;

// make(), connect() and the destructor belong to the command thread of the member's NIC, the other
// functions to the control thread, which calls none of them while the command thread is at work.
class ProbeQp {
 public:
  ProbeQp(Context& context, int member) : context_(context), member_(member) {}
  ~ProbeQp() { destroy(); }
  ProbeQp(const ProbeQp&) = delete;
  ProbeQp& operator=(const ProbeQp&) = delete;

  // Makes the QP, anew if there was one. `own` gets the address by which the other end connects to
  // it; the caller has set its GID, one of the NIC's, and its PSN.
  [[nodiscard]] bool make(wire::QpAddress& own);
  // Connects it. It can send only if `sends`.
  [[nodiscard]] bool connect(const wire::QpAddress& own, const wire::QpAddress& peer, bool sends);
  void destroy();

  // Posts an empty WRITE. False: the NIC did not take it.
  [[nodiscard]] bool post();
  // kFailed: the NIC has repeated the WRITE for as long as it may, without an answer. Anything else
  // that goes wrong is kBroken, and says nothing of the way.
  enum class Answer : uint8_t { kNone, kPassed, kFailed, kBroken };
  Answer look();

 private:
  Context& context_;
  const int member_;
  ibv_pd* pd_ = nullptr;
  ibv_cq* cq_ = nullptr;
  ibv_qp* qp_ = nullptr;
};

}  // namespace shift::group
