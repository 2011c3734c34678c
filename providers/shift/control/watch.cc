// Device events of both members, and CQs that the application may not be polling.
#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "control/coordinator.h"
#include "group/completion.h"
#include "group/shared_queue.h"
#include "group/stock.h"
#include "util/event_names.h"
#include "util/log.h"

namespace shift::control {

using fsm::Event;
using fsm::State;
using group::CompletionQueue;
using group::Context;
using group::Detector;
using group::Group;
using group::kDefault;
using std::chrono::milliseconds;

namespace {

void set_nonblocking(int fd) {
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

Group* group_of(Context* context, int member, const ibv_qp* real) {
  std::lock_guard lock(context->mutex);
  for (Group* group : context->groups) {
    if (group->real[member] == real) return group;
  }
  return nullptr;
}

bool names_qp(ibv_event_type type) {
  return event_names(type) == EventNames::kQp;
}

bool is_own(Context* context, const ibv_async_event& event) {
  if (!names_qp(event.event_type)) return false;
  std::lock_guard lock(context->mutex);
  return std::ranges::find(context->own_qps, event.element.qp) != context->own_qps.end();
}

// The event is about a QP or an SRQ that is the application's own on the default NIC.
bool is_unprotected(Context* context, int member, const ibv_async_event& event) {
  if (member != kDefault) return false;
  if (names_qp(event.event_type)) {
    return !is_own(context, event) && group_of(context, member, event.element.qp) == nullptr;
  }
  if (event_names(event.event_type) != EventNames::kSrq) return false;
  std::lock_guard lock(context->mutex);
  return std::ranges::none_of(context->srqs, [&](const group::SharedQueue* queue) {
    return queue->members[kDefault].real == event.element.srq;
  });
}

// Solicited only: errors count as solicited, and ordinary completions wake nobody. Linux's
// soft-RoCE does not count a sender's error so. There any completion wakes us, as often as
// watch_readable() lets it.
void arm_for_errors(const CompletionQueue& cq) {
  for (int member = 0; member < cq.context->member_count; member++) {
    ibv_cq* real = cq.real[member];
    const bool solicited_only = !cq.context->members[member].is_soft_roce;
    if (real != nullptr) real->context->ops.req_notify_cq(real, solicited_only ? 1 : 0);
  }
}

}  // namespace

bool Coordinator::is_protected(const Group& group) {
  switch (group.life.control.state) {
    case State::kUnbound:
    case State::kFailed:
    case State::kClosed:
      return false;
    default:
      return true;
  }
}

void Coordinator::context_add(Context* context) {
  control_.call_and_wait([this, context] {
    contexts_.push_back(context);
    uint8_t up = 0;
    for (int member = 0; member < context->member_count; member++) {
      if (group::member_port_is_up(*context, member)) up |= static_cast<uint8_t>(1u << member);
      if (context->members[member].real->async_fd < 0) continue;  // a simulation's
      set_nonblocking(context->members[member].real->async_fd);
      (void)control_.add_fd(context->members[member].real->async_fd, EPOLLIN,
                            [this, context, member](uint32_t) { async_readable(context, member); });
      if (context->members[member].watch != nullptr) {
        set_nonblocking(context->members[member].watch->fd);
        (void)control_.add_fd(context->members[member].watch->fd, EPOLLIN,
                              [this, context, member](uint32_t events) {
                                if (group::is_closed_channel(events)) {
                                  return control_.remove_fd(context->members[member].watch->fd);
                                }
                                watch_readable(context, member);
                              });
      }
    }
    up_[context] = up;
    for (int member = 0; member < context->member_count; member++) {
      (void)addresses_read(context, member);
      carrier_set(context, member);
    }
  });
}

void Coordinator::context_forget(Context* context) {
  control_.call_and_wait([this, context] {
    // Objects that the application leaves on it are its leak, as with stock, and no longer ours.
    std::vector<Binding*> left;
    for (auto& [serial, binding] : bindings_) {
      if (binding->group->context == context) left.push_back(binding.get());
    }
    for (Binding* binding : left) binding_forget(*binding);
    std::erase_if(rearm_, [this, context](const auto& entry) {
      if (entry.first->context != context) return false;
      control_.timer_cancel(entry.second);
      return true;
    });
    std::erase(contexts_, context);
    up_.erase(context);
    linkless_.erase(context);
    addresses_.erase(context);
    names_.erase(context);
    links_forget();
    std::erase_if(links_,
                  [context](const auto& entry) { return std::get<0>(entry.first) == context; });
    for (int member = 0; member < context->member_count; member++) {
      if (context->members[member].real->async_fd < 0) continue;
      control_.remove_fd(context->members[member].real->async_fd);
      if (context->members[member].watch != nullptr)
        control_.remove_fd(context->members[member].watch->fd);
    }
  });
}

void Coordinator::async_readable(Context* context, int member) {
  ibv_async_event event;
  while (stock->get_async_event(context->members[member].real, &event) == 0) {
    const bool unprotected = is_unprotected(context, member, event);
    device_event(context, member, event, unprotected);
    // Also where the application holds the object beneath itself: it may never read the event, and
    // who destroys the object would wait for ever. But not before the event waits: when the object
    // has gone, all of its events are there to be dropped.
    stock->ack_async_event(&event);
  }
}

void Coordinator::device_event(Context* context, int member, const ibv_async_event& event,
                               bool is_unprotected) {
  const char* name = context->name(member);
  SHIFT_DEBUG("%s: event: %s", name, stock->event_type_str(event.event_type));
  SHIFT_EVENT("device_event",
              {{"device", name}, {"type", stock->event_type_str(event.event_type)}});
  if (is_own(context, event)) return;
  const auto bit = static_cast<uint8_t>(1u << member);
  switch (event.event_type) {
    case IBV_EVENT_DEVICE_FATAL:
      context->members[member].dead = true;
      up_[context] &= static_cast<uint8_t>(~bit);
      member_lost(context, member, {"device fatal", Detector::kDevice});
      break;
    case IBV_EVENT_PORT_ERR:
      up_[context] &= static_cast<uint8_t>(~bit);
      member_lost(context, member, {"port down", Detector::kPort});
      break;
    case IBV_EVENT_PORT_ACTIVE:
      // A context that saw its device die stays dead, whatever the port does.
      if (context->members[member].dead || (up_[context] & bit) != 0) break;
      up_[context] |= bit;
      if ((members_up(context) & bit) != 0) member_back(context, member);
      break;
    case IBV_EVENT_GID_CHANGE:
      gids_changed(context, member);
      break;
    case IBV_EVENT_QP_LAST_WQE_REACHED: {
      // The application may be destroying it.
      std::lock_guard in_hand(context->event_mutex);
      if (Group* group = group_of(context, member, event.element.qp)) {
        group::receives_last_taken(*group, member);
      }
      break;
    }
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      if (!is_unprotected) return shared_queue_low(context, member, event);
      break;
    default:
      break;
  }
  if (member == kDefault) forward(context, event, is_unprotected);
}

// Once per arming, from whichever member runs low first.
void Coordinator::shared_queue_low(Context* context, int member, const ibv_async_event& event) {
  std::lock_guard lock(context->mutex);
  for (group::SharedQueue* queue : context->srqs) {
    if (queue->members[member].real != event.element.srq) continue;
    if (!queue->limit_armed.exchange(false)) return;
    ibv_async_event out = event;
    out.element.srq = &queue->srq;
    if (!context->events.raise(out, true)) {
      SHIFT_WARN_LIMITED("%s: the application does not read its events; one is lost",
                         context->device->dev.name);
    }
    return;
  }
}

void Coordinator::member_back(Context* context, int member) {
  SHIFT_INFO("%s: port up", context->name(member));
  net_->retry_paths();
  members_up_changed(context);
}

void Coordinator::member_lost(Context* context, int member, group::Cause cause) {
  int moving = 0;
  for (auto& [serial, binding] : bindings_) {
    Group& group = *binding->group;
    if (group.context != context || !is_protected(group)) continue;
    if (group.life.path.member == member) {
      moving += group.life.control.state == State::kActive;
      feed(*binding, Event::kPathFault, cause);
    } else if (group.life.control.state == State::kFencingTargeted &&
               binding->target.follower == member) {
      feed(*binding, Event::kTargetUnusable, cause);
    }
  }
  if (moving > 0) {
    SHIFT_WARN("%s: %s: %d QP%s move%s away", context->name(member), cause.text, moving,
               moving == 1 ? "" : "s", moving == 1 ? "s" : "");
  }
  members_up_changed(context);
}

// The default's responder met a request that the peer's application got wrong, or none at all. Its
// QP is broken by an application's doing, and the flushes that follow are all that tells of it
// here.
void Coordinator::request_refused(uint64_t serial) {
  control_.call_soon([this, serial] {
    Binding* binding = find(serial);
    if (binding == nullptr || binding->group->life.path.member != kDefault) return;
    Group& group = *binding->group;
    // Before the machine closes: behind that nobody would let go of what is held back. In the
    // middle of a round it is the machine that fails, and gives everything.
    const bool carries = group.life.control.state <= State::kHeld;
    if (carries && !group::errors_pass(group, kDefault) &&
        group.life.control.state == State::kActive) {
      group::fail(group);
    }
    feed(*binding, Event::kAppError, "the application's request was refused");
  });
}

// Puts the application's object in the place of the default's. False: the application knows nothing
// of this one, or may not hear of it (C9). Under the context's mutex.
bool Coordinator::name_for_application(Context* context, ibv_async_event* event) {
  if (names_qp(event->event_type)) {
    for (Group* group : context->groups) {
      if (group->real[kDefault] != event->element.qp) continue;
      event->element.qp = group->handle();
      if (event->event_type == IBV_EVENT_QP_REQ_ERR ||
          event->event_type == IBV_EVENT_QP_ACCESS_ERR) {
        // As with its completions: a NIC that is going has destroyed the memory regions itself.
        if (is_protected(*group) && !group::member_port_is_up(*context, kDefault)) return false;
        request_refused(group->life.serial);
      }
      return !is_protected(*group) || (event->event_type != IBV_EVENT_QP_FATAL &&
                                       event->event_type != IBV_EVENT_QP_LAST_WQE_REACHED);
    }
    return false;
  }
  switch (event->event_type) {
    case IBV_EVENT_CQ_ERR:
      for (CompletionQueue* cq : context->cqs) {
        if (cq->real[kDefault] != event->element.cq) continue;
        event->element.cq = &cq->cq;
        return true;
      }
      return false;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      for (group::SharedQueue* queue : context->srqs) {
        if (queue->members[kDefault].real != event->element.srq) continue;
        event->element.srq = &queue->srq;
        return true;
      }
      return false;
    default:
      return true;
  }
}

// Gives an event of the default NIC to the application, unless it would show a masked fault (C9).
void Coordinator::forward(Context* context, const ibv_async_event& event, bool is_unprotected) {
  ibv_async_event out = event;
  switch (event.event_type) {
    case IBV_EVENT_DEVICE_FATAL:
    case IBV_EVENT_PORT_ERR:
    case IBV_EVENT_PORT_ACTIVE:
    case IBV_EVENT_GID_CHANGE:
      if (std::any_of(bindings_.begin(), bindings_.end(), [&](const auto& entry) {
            return entry.second->group->context == context && is_protected(*entry.second->group);
          })) {
        return;
      }
      break;
    default:
      break;
  }
  // Held until the event waits: whoever destroys the object takes it off the lists first, and the
  // events after that.
  std::lock_guard lock(context->mutex);
  if (!is_unprotected && !name_for_application(context, &out)) return;
  if (!context->events.raise(out, true)) {
    SHIFT_WARN_LIMITED("%s: the application does not read its events; one is lost",
                       context->device->dev.name);
  }
}

void Coordinator::watch_arm(Binding& binding) {
  Group& group = *binding.group;
  for (CompletionQueue* cq : {group.send_cq, group.recv_cq}) {
    if (cq->channel != nullptr) {
      unpolled_watch(binding);  // it is the application that arms it
      continue;
    }
    arm_for_errors(*cq);
  }
}

void Coordinator::watch_readable(Context* context, int member) {
  ibv_cq* real;
  void* owner;
  while (stock->get_cq_event(context->members[member].watch, &real, &owner) == 0) {
    stock->ack_cq_events(real, 1);
    auto* cq = static_cast<CompletionQueue*>(owner);
    group::inspect(*cq);
    if (rearm_.contains(cq)) continue;
    // Not at once: programs with solicited traffic would wake this thread for each message.
    rearm_[cq] = control_.timer_start(milliseconds(5), [this, cq] {
      rearm_.erase(cq);
      arm_for_errors(*cq);
      // What came between the event and now raises none: look.
      group::inspect(*cq);
    });
  }
}

int Coordinator::cq_destroy(CompletionQueue* cq) {
  int error = 0;
  auto destroy = [this, cq, &error] {
    error = stock->destroy_cq(cq->real[kDefault]);
    if (error != 0) return;
    group::twin_cqs_destroy(*cq);
    auto it = rearm_.find(cq);
    if (it == rearm_.end()) return;
    control_.timer_cancel(it->second);
    rearm_.erase(it);
  };
  // In a fork child there is no such thread, and nobody to race with.
  if (!control_.call_and_wait(destroy)) destroy();
  return error;
}

}  // namespace shift::control
