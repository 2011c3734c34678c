// Queue pairs whose errors nobody may be looking for. A CQ with a completion channel is armed by
// the application alone, and one that waits for something else (it spins on memory that a WRITE
// will change) polls nothing: neither it nor we would learn that its QP broke (C7).
//
// So each QP is asked for its state after the application has stopped posting, until the NIC must
// have given up, if it does. Who goes on posting polls, too, or its queue is full.
#include "control/coordinator.h"
#include "group/completion.h"
#include "group/stock.h"

namespace shift::control {

using group::Group;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

namespace {

// Longer than a NIC's patience on most protected paths: one look is often enough.
constexpr milliseconds kLookPause{250};

bool is_broken(const ibv_qp_attr& attr) {
  return attr.qp_state == IBV_QPS_ERR || attr.qp_state == IBV_QPS_SQE;
}

// How long a NIC may go on for an acknowledgement. The attribute is a power of 4.096 us, and the
// NIC may wait for four times that each time (IBTA 9.7.6.1.3). A timeout of 0 never ends: there is
// nothing to wait for.
nanoseconds patience(const ibv_qp_attr& attr) {
  if (attr.timeout == 0) return {};
  const nanoseconds timeout{int64_t{4096} << (attr.timeout & 31)};
  return 4 * timeout * (attr.retry_cnt + 1);
}

}  // namespace

void Coordinator::unpolled_watch(Binding& binding) {
  binding.look_until = Time::max();
  if (unpolled_timer_ == 0) unpolled_timer_start();
}

void Coordinator::unpolled_timer_start() {
  unpolled_timer_ = control_.timer_start(kLookPause, [this] {
    unpolled_timer_ = 0;
    unpolled_look();
  });
}

void Coordinator::unpolled_look() {
  const Time now = control_.now();
  bool any = false;
  for (auto& [serial, binding] : bindings_) {
    Group& group = *binding->group;
    if (group.send_cq->channel == nullptr || !is_protected(group)) continue;
    any = true;
    const uint64_t posted = group.send.journal.head();
    if (posted != std::exchange(binding->posted, posted)) {
      binding->look_until = Time::max();
    } else if (now < binding->look_until && group.life.control.state == fsm::State::kActive) {
      ibv_qp* real = group.real[group.life.path.member];
      ibv_qp_attr attr{};
      ibv_qp_init_attr init{};
      constexpr int kAsked = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT;
      if (stock->query_qp(real, &attr, kAsked, &init) != 0) continue;
      if (is_broken(attr)) group::inspect(*group.send_cq);
      if (binding->look_until == Time::max()) {
        binding->look_until = now + patience(attr) + kLookPause;
      }
    }
  }
  if (any) unpolled_timer_start();
}

}  // namespace shift::control
