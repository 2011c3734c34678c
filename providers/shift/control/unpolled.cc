// Queue pairs whose errors nobody may be looking for. A CQ with a completion channel is armed by
// the application alone, and one that waits for something else (it spins on memory that a WRITE
// will change) polls nothing: neither it nor we would learn that its QP broke (C7).
//
// So each QP is asked for its state a few times after the application has stopped posting: that is
// when the NIC gives up, if it does. Who goes on posting polls, too, or its queue is full.
#include "control/coordinator.h"
#include "group/below.h"
#include "group/completion.h"

namespace shift::control {

using group::Group;
using std::chrono::milliseconds;

namespace {

// Behind the NIC's patience on protected paths.
constexpr milliseconds kLookPause{250};

bool is_broken(ibv_qp* real) {
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  return below->query_qp(real, &attr, IBV_QP_STATE, &init) == 0 &&
         (attr.qp_state == IBV_QPS_ERR || attr.qp_state == IBV_QPS_SQE);
}

}  // namespace

void Coordinator::unpolled_watch() {
  if (unpolled_timer_ != 0) return;
  unpolled_timer_ = control_.timer_start(kLookPause, [this] {
    unpolled_timer_ = 0;
    unpolled_look();
  });
}

void Coordinator::unpolled_look() {
  bool any = false;
  for (auto& [serial, binding] : bindings_) {
    Group& group = *binding->group;
    if (group.send_cq->channel == nullptr) continue;
    any = true;
    const uint64_t posted = group.send.journal.head();
    if (posted != std::exchange(binding->posted, posted)) {
      binding->looks_start();
    } else if (binding->looks > 0 && group.state == fsm::State::kActive) {
      binding->looks--;
      ibv_qp* real = group.real[static_cast<size_t>(group.member.load())];
      if (is_broken(real)) group::inspect(*group.send_cq);
    }
  }
  if (any) unpolled_watch();
}

}  // namespace shift::control
