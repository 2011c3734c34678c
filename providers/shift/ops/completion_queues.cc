// Completion channels and completion queues.
#include "ops/completion_queues.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>

#include "group/completion.h"
#include "group/completion_events.h"
#include "group/extended.h"
#include "group/twins.h"
#include "ops/deputy.h"
#include "ops/domains.h"
#include "ops/entry.h"
#include "ops/open_contexts.h"
#include "ops/query_qp.h"
#include "ops/tables.h"
#include "util/planted.h"
#include "util/restarts.h"
#include "util/uncancellable.h"

namespace shift::ops {
namespace {

using group::CompletionChannel;
using group::CompletionQueue;
using group::Context;
using group::kDefault;
using group::kMembersMax;

void epoll_add(int epoll_fd, int fd, uint64_t tag) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = tag;
  (void)epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

constexpr uint64_t kInjectTag = kMembersMax;

// The time after the end of a device, when the program has surely seen the channel readable or is
// about to wait.
constexpr std::chrono::milliseconds kOwedForClosed{10};

// Counts an event as delivered when a thread takes it, and not when the application gets it: the
// thread that destroys the CQ waits for delivered events, and would otherwise not see a thread that
// has taken the event and polls the CQ. False: a thread destroys the CQ already, and nothing may
// touch the CQ any more.
bool count_event(CompletionQueue* cq) {
  pthread_mutex_lock(&cq->cq.mutex);
  const bool gives = cq->gives_events;
  if (gives) cq->events_delivered++;
  pthread_mutex_unlock(&cq->cq.mutex);
  return gives;
}

// Drops an event that was counted and is not for the application. The CQ may be gone after this
// call.
void uncount_event(CompletionQueue* cq) {
  pthread_mutex_lock(&cq->cq.mutex);
  cq->events_delivered--;
  pthread_cond_signal(&cq->cq.cond);
  pthread_mutex_unlock(&cq->cq.mutex);
}

// real_event(), injected_event() and owed_event() take an event without blocking, and count it.

CompletionQueue* real_event(CompletionChannel* channel, int member) {
  ibv_cq* real;
  void* owner;
  if (stock->get_cq_event(channel->real[member], &real, &owner) != 0) return nullptr;
  auto* cq = static_cast<CompletionQueue*>(owner);
  const bool counts = count_event(cq);
  // This comes after the counting: until then the unacknowledged event keeps the CQ from being
  // destroyed.
  stock->ack_cq_events(real, 1);
  return counts ? cq : nullptr;
}

CompletionQueue* injected_event(CompletionChannel* channel) {
  std::lock_guard lock(channel->mutex);  // a CQ on the list is not destroyed
  CompletionQueue* cq = nullptr;
  if (!channel->injected.empty()) {
    cq = channel->injected.front();
    channel->injected.pop_front();
    if (!count_event(cq)) cq = nullptr;
  }
  if (channel->injected.empty()) {
    uint64_t count;
    while (read(channel->inject_fd, &count, sizeof count) > 0) {
    }
  }
  return cq;
}

}  // namespace

// The application may poll(2), epoll or set O_NONBLOCK on channel.fd: an epoll descriptor over all
// members' channels allows all of that without a thread in between.
ibv_comp_channel* create_comp_channel(ibv_context* context) noexcept {
  Context* c = Context::from(context);
  auto channel = std::unique_ptr<CompletionChannel>(new (std::nothrow) CompletionChannel{});
  if (channel == nullptr) {
    errno = ENOMEM;
    return nullptr;
  }
  channel->channel.context = context;
  channel->channel.refcnt = 0;
  channel->channel.fd = epoll_create1(EPOLL_CLOEXEC);
  channel->inject_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  for (int member = 0; member < c->member_count; member++) {
    channel->real[member] =
        member == kDefault
            ? make_at_home(*c, [](Home at) { return stock->create_comp_channel(at.real); })
            : stock->create_comp_channel(c->members[member].real);
  }
  if (channel->channel.fd < 0 || channel->inject_fd < 0 || channel->real[kDefault] == nullptr) {
    const int error = errno;
    (void)destroy_comp_channel(&channel.release()->channel);
    errno = error;
    return nullptr;
  }
  for (int member = 0; member < kMembersMax; member++) {
    if (channel->real[member] == nullptr) continue;
    const int fd = channel->real[member]->fd;
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    epoll_add(channel->channel.fd, fd, member);
  }
  epoll_add(channel->channel.fd, channel->inject_fd, kInjectTag);
  return &channel.release()->channel;
}

int destroy_comp_channel(ibv_comp_channel* channel) noexcept {
  auto* c = virtual_channel(channel);
  {
    std::lock_guard lock(Context::from(channel->context)->mutex);
    if (channel->refcnt != 0 && !SHIFT_PLANT(busy_forgotten)) return EBUSY;
  }
  if (c->inject_fd >= 0) close(c->inject_fd);
  if (channel->fd >= 0) close(channel->fd);
  Context& context = *Context::from(channel->context);
  if (c->real[kDefault] != nullptr) {
    (void)group::default_destroy(
        context, false, [real = c->real[kDefault]] { return stock->destroy_comp_channel(real); });
  }
  // These come after the destruction of the CQs that use them.
  coordinator().later([held = group::Held(c), of = group::Held(&context)] {
    for (int member = kDefault + 1; member < of->member_count; member++) {
      ibv_comp_channel* real = held->real[member];
      if (real == nullptr) continue;
      (void)group::on_nic(*of, member, [real, of] { (void)stock->destroy_comp_channel(real); });
    }
  });
  group::let_go(c);
  return 0;
}

namespace {

// A program that gets an event may poll once and take for granted that it finds something (C9).
bool is_due(CompletionQueue* cq) {
  // Without a fault an event may be for a completion that the program has found already, as with
  // stock. That is different when the CQ had completions that the layer made, or of a masked fault,
  // a moment ago (has_news() may just have found those): then this event stands for them, or it is
  // the second event, after one of the layer or of another NIC, for completions that the
  // application was given an event for.
  return has_news(cq) || !group::is_in_doubt(*cq) || group::is_event_open(*cq);
}

// Arms the further members' CQs once there has been traffic on those members.
void arm_twins(CompletionQueue* q, int solicited_only) {
  if (q->poll_all) [[unlikely]] {
    for (int member = kDefault + 1; member < kMembersMax; member++) {
      ibv_cq* twin = q->real[member];
      if (twin != nullptr) (void)twin->context->ops.req_notify_cq(twin, solicited_only);
    }
  }
}

// True: the event is for the application. False: completions of a masked fault, which were held
// back, raised the event, and the application goes on waiting. `has_waited`: it waited already when
// the event came, so it has not seen the channel readable.
bool take_event(CompletionQueue* cq, bool has_waited) {
  // In doubt, each arming gives one event: the other one is of a second NIC, or the layer's own
  // stands for it. Otherwise the application may have armed the CQ again before it took the event
  // of an earlier arming, and gets an event for each, as with stock.
  if (!cq->armed && group::is_in_doubt(*cq)) {
    // A NIC may still be armed when the application is not any more. A program that arms no queue
    // may look at the channel all the same, and must not wait here for what it saw.
    if (!has_waited) {
      cq->channel->owe(*cq, group::event_clock() + group::kOwedSettled, true);
    }
    return false;
  }
  if (!is_due(cq)) {
    group::surplus_noticed(*cq);
    ibv_cq* real = cq->real[kDefault];
    arm_twins(cq, cq->armed_solicited);
    (void)real->context->ops.req_notify_cq(real, cq->armed_solicited);
    // A completion that came before the new arming raises no event, so the CQ is looked at again.
    if (!is_due(cq)) {
      if (!has_waited) group::owe_event(*cq);
      return false;
    }
  }
  return cq->armed.exchange(false) ||
         (!group::is_in_doubt(*cq) && !SHIFT_PLANT(unarmed_event_lost));
}

bool is_masked(CompletionChannel* channel) {
  return context_is_masked(*Context::from(channel->channel.context));
}

// A member's driver let go of its device, and its channel says so for ever. False: it was the
// default's driver, and no fault is masked: the application gets an error, as with stock.
bool leave_closed(CompletionChannel* channel, uint64_t member) {
  if (member == kDefault) {
    channel->default_closed = true;
    if (!is_masked(channel)) return false;
  }
  (void)epoll_ctl(channel->channel.fd, EPOLL_CTL_DEL, channel->real[member]->fd, nullptr);
  return true;
}

// The application may have seen a closed channel readable, and gets one event for it, of an armed
// queue if there is one. `now`: returns the counted event of that queue, or null when there is no
// event to give. Otherwise a thread that blocks is owed the event.
CompletionQueue* event_for_closed(CompletionChannel* channel, bool now) {
  Context* context = Context::from(channel->channel.context);
  std::lock_guard lock(context->mutex);
  CompletionQueue* told_of = nullptr;
  for (CompletionQueue* cq : context->cqs) {
    if (cq->channel == channel && (told_of == nullptr || !told_of->armed)) told_of = cq;
  }
  if (told_of == nullptr) return nullptr;
  if (now) {
    told_of->armed = false;
    return count_event(told_of) ? told_of : nullptr;
  }
  channel->owe(*told_of, group::event_clock() + kOwedForClosed, true);
  return nullptr;
}

// Whether the program looks first whether the channel is readable, and so never has to wait in a
// call. The layer cannot see it look. `blocking`: the descriptor blocks.
bool looks_first(const CompletionChannel& channel, bool blocking) {
  constexpr unsigned kSure = 4;  // calls that found an event at once
  if (!blocking) return true;
  if (SHIFT_PLANT(looks_unnoticed) || SHIFT_PLANT(event_kept_long)) return false;
  return !channel.is_waited_on && channel.found_at_once >= kSure;
}

// How long to wait for an event: for ever, unless an event was kept back. What is owed may be due
// earlier by the time that a switch is over; so a long wait has parts.
int patience_ms(CompletionChannel* channel) {
  std::lock_guard lock(channel->mutex);
  if (channel->owed.empty()) return -1;
  const auto left = std::min<std::chrono::nanoseconds>(
      channel->owed.front().at - group::event_clock(), group::kOwedSettled);
  return std::max(0, static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(left).count()));
}

CompletionQueue* owed_event(CompletionChannel* channel) {
  for (;;) {
    std::unique_lock lock(channel->mutex);
    if (channel->owed.empty() || channel->owed.front().at > group::event_clock()) return nullptr;
    auto one = channel->owed.front();
    channel->owed.pop_front();
    if (!count_event(one.cq)) continue;  // what is counted keeps the CQ from being destroyed
    lock.unlock();
    if (group::is_premature(*one.cq, one)) {
      one.at = group::event_clock() + group::kOwedSettled;
      lock.lock();
      // Meanwhile the layer may owe it once more, by a better reason.
      const bool is_known = std::ranges::find(channel->owed, one.cq,
                                              &CompletionChannel::Owed::cq) != channel->owed.end();
      if (!is_known) channel->owe_once(one);
      lock.unlock();
    } else if (one.cq->armed.exchange(false) || (one.unarmed && !group::is_announcing(*one.cq))) {
      return one.cq;
    }
    uncount_event(one.cq);
  }
}

// Fails as a read from the channel of a device that is gone does.
int closed() {
  errno = EIO;
  return -1;
}

// Hands over an event that was counted. Whoever had seen the channel readable has got one, then, so
// nothing is owed any more, whatever queue it was to be of.
// `is_injected`: it is one of the layer's own.
int give_event(CompletionChannel* channel, CompletionQueue* source, ibv_cq** cq, void** cq_context,
               bool is_injected = false) {
  group::event_given(*source, is_injected);
  {
    std::lock_guard lock(channel->mutex);
    std::erase_if(channel->owed, [source](const auto& one) {
      return one.cq == source || !SHIFT_PLANT(owed_by_queue);
    });
  }
  *cq = &source->cq;
  *cq_context = source->cq.cq_context;
  return 0;
}

}  // namespace

int get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) {
  auto* c = virtual_channel(channel);
  const bool blocking = !(fcntl(channel->fd, F_GETFL) & O_NONBLOCK);
  const bool looks = looks_first(*c, blocking);
  bool has_waited = false;
  for (bool is_first = true;; is_first = false) {
    epoll_event ready[1];
    const int count = epoll_wait(channel->fd, ready, 1, 0);
    if (count < 0) return -1;
    if (count == 0) {
      {
        const Uncancellable shield;
        if (CompletionQueue* source = owed_event(c)) return give_event(c, source, cq, cq_context);
        if (c->default_closed && !is_masked(c)) return closed();
      }
      if (!blocking) {
        errno = EAGAIN;
        return -1;
      }
      // (After an event that was kept back, a program that looked first waits, too.)
      if (is_first) c->is_waited_on.store(true, std::memory_order_relaxed);
      pollfd readable{channel->fd, POLLIN, 0};
      if (!wait_readable(&readable, 1, patience_ms(c))) return -1;
      has_waited = true;
      continue;
    }
    const Uncancellable shield;  // an event that was taken must be given
    if (is_first) c->found_at_once.fetch_add(1, std::memory_order_relaxed);
    if (group::is_closed_channel(ready[0].events)) {
      if (!leave_closed(c, ready[0].data.u64)) return closed();
      // A thread that has waited in this call has not looked whether the channel is readable.
      if (has_waited) continue;
      CompletionQueue* told_of = event_for_closed(c, looks);
      if (told_of != nullptr) return give_event(c, told_of, cq, cq_context);
      continue;
    }
    const bool is_injected = ready[0].data.u64 == kInjectTag;
    CompletionQueue* source = is_injected ? injected_event(c) : real_event(c, ready[0].data.u64);
    if (source == nullptr) continue;
    // (The layer judged an injected event when it made it.)
    if (is_injected) return give_event(c, source, cq, cq_context, true);
    if (!looks && !take_event(source, has_waited)) {
      uncount_event(source);
      continue;
    }
    // Programs that do not wait look first whether the channel is readable. Some (Gloo) take it for
    // a failure when they then get no event, and others, whose descriptor blocks, would stand still
    // for as long as an outage lasts. All of these programs poll until the queue is empty, so too
    // many events do them no harm.
    if (looks) source->armed = false;
    return give_event(c, source, cq, cq_context);
  }
}

void ack_cq_events(ibv_cq* cq, unsigned count) noexcept {
  pthread_mutex_lock(&cq->mutex);
  cq->comp_events_completed += count;
  pthread_cond_signal(&cq->cond);
  pthread_mutex_unlock(&cq->mutex);
}

int room_for(const Context& context, const CompletionQueue& cq, int cqe, int flushable) {
  const int max = context.device_attr.orig_attr.max_cqe;
  if (context.frees_by_polling) {
    const int others = cq.takes_others && flushable != 0 ? cqe : 0;
    return std::max(cqe, flushable <= max - others ? others + flushable : max);
  }
  if (cqe > 0 && flushable > cqe)
    return flushable <= max - cqe ? cqe + flushable : std::max(cqe, max);
  return cqe > 0 && cqe <= max / 2 ? cqe * 2 : cqe;
}

int shown_cqe(int asked, int room, int real) {
  return room == asked ? real : room == 2 * asked ? real / 2 : asked;
}

ibv_comp_channel* real_channel(Context& context, Home at, ibv_comp_channel* channel) {
  // Nothing completes on the deputy's CQs, and the channel may be the dead NIC's.
  if (at.is_deputy) return nullptr;
  return channel != nullptr ? virtual_channel(channel)->real[kDefault]
                            : context.members[kDefault].watch;
}

CompletionQueue* publish_cq(std::unique_ptr<CompletionQueue> cq, Context& context,
                            ibv_comp_channel* channel, void* cq_context) {
  cq->context = &context;
  cq->channel = channel != nullptr ? virtual_channel(channel) : nullptr;
  cq->cq = *cq->real[kDefault];
  cq->entries = cq->cq.cqe;
  cq->cq.context = context.handle();
  cq->cq.cqe = shown_cqe(cq->asked, room_for(context, *cq, cq->asked, 0), cq->real[kDefault]->cqe);
  cq->cq.channel = channel;
  cq->cq.cq_context = cq_context;
  cq->cq.comp_events_completed = 0;
  cq->cq.async_events_completed = 0;
  pthread_mutex_init(&cq->cq.mutex, nullptr);
  pthread_cond_init(&cq->cq.cond, nullptr);
  {
    std::lock_guard lock(context.mutex);
    context.cqs.push_back(cq.get());
    if (channel != nullptr) channel->refcnt++;
  }
  cq->context_held = group::Held(&context);
  cq->channel_held = group::Held(cq->channel);
  cq->domain_held = group::Held(cq->domain);
  group::twin_cqs_create(*cq);
  return cq.release();
}

ibv_cq* create_cq(ibv_context* context, int cqe, void* cq_context, ibv_comp_channel* channel,
                  int comp_vector) noexcept try {
  Context* c = Context::from(context);
  auto cq = std::make_unique<CompletionQueue>();
  cq->asked = cqe;
  cq->real[kDefault] = make_at_home(*c, [&](Home at) {
    return stock->create_cq(at.real, room_for(*c, *cq, cqe, 0), cq.get(),
                            real_channel(*c, at, channel), at.is_deputy ? 0 : comp_vector);
  });
  if (cq->real[kDefault] == nullptr) return nullptr;
  return &publish_cq(std::move(cq), *c, channel, cq_context)->cq;
} catch (const std::bad_alloc&) {
  errno = ENOMEM;
  return nullptr;
}

namespace {

// Waits, as stock does, until the application has acknowledged every event that it got. Stock
// destroys the NIC's queue first and takes no event of that queue afterwards. With SHIFT, a
// thread that has taken an event looks into the NIC's queue, so the wait comes first.
void last_event(CompletionQueue* q) {
  const Uncancellable shield;
  ibv_cq& cq = q->cq;
  pthread_mutex_lock(&cq.mutex);
  while (cq.comp_events_completed != q->events_delivered) pthread_cond_wait(&cq.cond, &cq.mutex);
  q->gives_events = false;
  pthread_mutex_unlock(&cq.mutex);
}

// The default's.
int destroy_real(CompletionQueue& q) {
  return stock->destroy_cq(q.real[kDefault]);
}

void events_again(CompletionQueue* q) {
  pthread_mutex_lock(&q->cq.mutex);
  q->gives_events = true;
  pthread_mutex_unlock(&q->cq.mutex);
}

void ending_set(CompletionQueue* q, bool is_ending) {
  std::lock_guard lock(q->mutex);
  q->is_ending = is_ending;
}

}  // namespace

int destroy_cq(ibv_cq* cq) noexcept {
  CompletionQueue* q = CompletionQueue::from(cq);
  if (q->users != 0) return EBUSY;
  last_event(q);
  ending_set(q, true);
  // An event that another thread takes meanwhile delays the call no longer than it takes to drop
  // it.
  const int error = group::default_destroy(*q->context, false,
                                           [held = group::Held(q)] { return destroy_real(*held); });
  if (error != 0) {
    ending_set(q, false);
    coordinator().cq_stays(q);
    events_again(q);
    return error;
  }
  coordinator().later([held = group::Held(q)] { group::twin_cqs_destroy(*held); });
  if (q->domain != nullptr) {
    give_back_released(*q->domain);
    q->domain->users--;
  }
  {
    std::lock_guard lock(q->context->mutex);
    std::erase(q->context->cqs, q);
    if (q->channel != nullptr) {
      std::lock_guard events(q->channel->mutex);
      std::erase(q->channel->injected, q);
      std::erase_if(q->channel->owed, [q](const auto& one) { return one.cq == q; });
    }
    if (cq->channel != nullptr) cq->channel->refcnt--;  // from here on the channel may be destroyed
  }
  q->context->events.forget(cq);
  group::let_go(q);
  return 0;
}

namespace {

// The NIC raises no event for completions that a program left in an extended poll's batch, since
// the layer has polled them. A batch of another thread is left for that thread to go on with.
void wake_for_leftovers(CompletionQueue& cq) {
  const bool may_be_left =
      cq.bias.is_own() ? cq.extended->next < cq.extended->count : !cq.bias.has_owner();
  if (may_be_left) group::extended_wake(cq);
}

}  // namespace

int req_notify_cq(ibv_cq* cq, int solicited_only) {
  CompletionQueue* q = CompletionQueue::from(cq);
  if (q->doubtful_until.load(std::memory_order_relaxed) != std::chrono::steady_clock::time_point{})
      [[unlikely]] {
    group::note_arming(*q);
  }
  q->armed_solicited = solicited_only != 0;
  // Release: who sees that the queue is armed also sees for what.
  q->armed.store(true, std::memory_order_release);
  std::atomic_signal_fence(std::memory_order_seq_cst);  // before poll_all: see barrier_everywhere()
  if (q->extended != nullptr) {
    wake_for_leftovers(*q);
  } else if (!q->bias.has_owner() && !SHIFT_PLANT(left_untold)) [[unlikely]] {
    auto lock = group::lock_queue(*q);  // (while the queue has an owner, its side queue is empty)
    group::signal_left(*q);
  }
  ibv_cq* real = q->real[kDefault];
  arm_twins(q, solicited_only);
  return real->context->ops.req_notify_cq(real, solicited_only);
}

}  // namespace shift::ops
