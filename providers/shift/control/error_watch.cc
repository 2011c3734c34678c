#include "control/error_watch.h"

#include <fcntl.h>
#include <sys/epoll.h>

#include "control/jobs.h"
#include "control/sessions.h"
#include "group/completion.h"
#include "group/completion_events.h"
#include "group/context.h"
#include "group/error_arming.h"
#include "group/locked.h"
#include "group/member_qp.h"

namespace shift::control {

using group::CompletionQueue;
using group::Context;
using group::Group;
using std::chrono::milliseconds;

namespace {

// Without this pause, programs with solicited traffic would wake this thread for each message.
constexpr milliseconds kArmPause{5};
// This is longer than a NIC's patience on most protected paths, so one look is often enough.
constexpr milliseconds kWatchPause{250};

}  // namespace

void ErrorWatch::context_add(Context* context) {
  for (int m = 0; m < context->member_count; m++) {
    const ibv_comp_channel* channel = context->members[m].watch;
    if (channel == nullptr) continue;
    const int fd = channel->fd;
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    (void)loop_.add_fd(fd, EPOLLIN, [this, context, m, fd](uint32_t events) {
      if (group::is_closed_channel(events)) return loop_.remove_fd(fd);
      readable(context, m);
    });
  }
}

void ErrorWatch::context_forget(Context* context) {
  std::erase_if(rearm_, [this, context](const auto& entry) {
    if (entry.first->context != context) return false;
    loop_.timer_cancel(entry.second);
    return true;
  });
  for (int m = 0; m < context->member_count; m++) {
    const ibv_comp_channel* channel = context->members[m].watch;
    if (channel != nullptr) loop_.remove_fd(channel->fd);
  }
}

void ErrorWatch::watch(Session& session) {
  for (CompletionQueue* cq : {session.group.send_cq, session.group.recv_cq}) {
    if (cq->channel == nullptr) {
      group::errors_arm(*cq);
      continue;
    }
    session.unpolled.look_until = Time::max();
    if (!look_again_.is_running()) look_start();
  }
}

void ErrorWatch::readable(Context* context, int member) {
  group::errors_take(*context, member, [this](CompletionQueue& queue) {
    CompletionQueue* cq = &queue;
    if (cq->is_ending) return;
    group::inspect(*cq);
    if (rearm_.contains(cq)) return;
    // The event is not acknowledged yet, so the queue is not destroyed before it is held.
    rearm_[cq] = loop_.timer_start(loop_.now() + kArmPause, [this, held = group::Held(cq)] {
      rearm_.erase(held.get());
      if (held->is_ending) return;
      group::errors_arm(*held);
      // A completion that came between the event and now raises no event, so the CQ is looked at.
      group::inspect(*held);
    });
  });
}

void ErrorWatch::cq_again(CompletionQueue& cq) {
  if (cq.channel == nullptr) group::errors_arm(cq);
  group::inspect(cq);
}

void ErrorWatch::look_start() {
  look_again_.start(kWatchPause, [this] { look(); });
}

void ErrorWatch::look() {
  const Time now = loop_.now();
  bool any = false;
  sessions_.for_each([&](Session& session) {
    Group& group = session.group;
    if (group.send_cq->channel == nullptr || !group::is_protected(group)) return;
    any = true;
    Unpolled& unpolled = session.unpolled;
    const uint64_t posted = group.send.journal.head();
    if (posted != std::exchange(unpolled.posted, posted)) {
      unpolled.look_until = Time::max();
      return;
    }
    if (now >= unpolled.look_until || session.control.state != fsm::State::kActive) return;
    if (!unpolled.is_asking) ask(session);
  });
  if (any) look_start();
}

void ErrorWatch::ask(Session& session) {
  session.unpolled.is_asking = true;
  const int member = session.group.life.path.member;
  jobs_.run(
      session, member, [member](Group& g) { return group::member_qp_health(g, member); },
      [this](Session& asked, const std::optional<group::QpHealth>& health) {
        Unpolled& unpolled = asked.unpolled;
        unpolled.is_asking = false;
        if (!health) return;
        if (health->is_broken) group::inspect(*asked.group.send_cq);
        if (unpolled.look_until == Time::max()) {
          unpolled.look_until = loop_.now() + health->patience + kWatchPause;
        }
      });
}

}  // namespace shift::control
