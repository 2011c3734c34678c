#include "ops/post_slow.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "group/context.h"
#include "group/failing.h"
#include "group/fault_sink.h"
#include "group/keys.h"
#include "group/park.h"
#include "group/replay.h"
#include "ops/builder.h"
#include "ops/entry.h"
#include "ops/prove.h"
#include "util/log.h"

namespace shift::ops {

using group::Group;
using group::kDefault;
using group::Route;

namespace {

// Whether the journal has room for one more WR after `pending` uncommitted ones. The caller holds
// send.mutex.
bool send_has_room(const Group& group, uint32_t pending) {
  const auto& journal = group.send.journal;
  const uint64_t first = journal.first_incomplete(static_cast<uint32_t>(group.counters.done[0]));
  return journal.head() + pending - first < journal.depth();
}

// The NIC of the current path has refused a request or a receive. True: the group is protected, so
// the layer keeps it for the next path. The caller then reports the fault, and is the only user of
// the queue.
//
// The protection cannot end between the look and the mark: errors_pass() holds the same mutexes. It
// finds the mark, and the application still gets an error for what was kept.
bool holds_back_refusal(Group& group, int member) {
  group::CqLock lock(group);
  auto& errors = group.life.errors.members[member];
  if (errors.accept != group::Accept::kGuard) return false;
  errors.fault_reported = true;
  group.life.errors.keeps_refused = true;
  return true;
}

// Nobody takes over what the NIC has refused: the application gets it back with the error, as on
// the stock library. It cannot get back requests of earlier calls, which waited for a key; their
// group can only fail. Returns the errno.
int take_back_refused(Group& group, uint64_t from, int member, int error) {
  if (group.send.posted < from) {
    group::fault_sink->fault(&group, fsm::Event::kReplayRefused, member,
                             {"a request could not be posted", group::Detector::kPost});
  }
  const uint64_t refused = std::max(from, group.send.posted);
  if (refused < group.send.journal.head()) group.send.journal.take_back(refused);
  return error == ENOKEY ? EINVAL : error;
}

// Gives the new requests, the journal entries from `from` on, to the current path. The caller holds
// send.mutex. Returns 0, or an errno when the journal ends before the request that was refused.
int send_on_path(Group& group, uint64_t from) {
  const int member = group.life.path.member;
  int error = group::pump(group);
  if (error != 0 && !holds_back_refusal(group, member)) {
    error = take_back_refused(group, from, member, error);
  } else if (error != 0) {
    // A request that no NIC takes must not blame the path, or the group would go round all paths
    // for ever.
    const bool blames_path = group::post_blames_path(error);
    group::fault_sink->fault(&group,
                             blames_path ? fsm::Event::kPathFault : fsm::Event::kReplayRefused,
                             member, {"a request could not be posted", group::Detector::kPost});
    error = 0;
  }
  group::settle(group);
  return error;
}

// Called when the application has posted while the hot path is barred: leaves the new requests
// parked, posts them on the current path, or flushes them. The caller holds send.mutex; the journal
// entries from `from` on are new. Returns what send_on_path() does.
int send_appended(Group& group, uint64_t from) {
  switch (group.send.route) {
    case Route::kOnPath:
      return send_on_path(group, from);
    case Route::kError:
      for (uint64_t position = from; position < group.send.journal.head(); position++) {
        group::flush_send(group, position);
      }
      break;
    case Route::kParked:
    case Route::kOnDefault:
      break;
  }
  return 0;
}

// Why the provider beneath would refuse the WR: an errno, or 0. Such a WR must not get into the
// journal, because when a NIC refuses it later, the application's call has already returned. The
// errno is the one of mlx5 (other providers return EINVAL).
int refusal_of(const Group& group, const ibv_send_wr& wr) {
  if (wr.num_sge < 0 || static_cast<uint32_t>(wr.num_sge) > group.cap.max_send_sge) return EINVAL;
  if (wr.send_flags & IBV_SEND_INLINE) {
    uint64_t length = 0;
    for (int i = 0; i < wr.num_sge; i++) length += wr.sg_list[i].length;
    if (length > group.cap.max_inline_data) return ENOMEM;
  }
  return group.send.route != Route::kError && !send_has_room(group, 0) ? ENOMEM : 0;
}

}  // namespace

int post_send_slow(Group& group, ibv_send_wr* wr, ibv_send_wr** bad_wr) {
  auto lock = lock_queue(group.send, true);
  auto& journal = group.send.journal;
  if (group.send.route == Route::kOnDefault) {
    ibv_qp* real = group.real[kDefault];
    const int error = real->context->ops.post_send(real, wr, bad_wr);
    if (error == 0) {
      prove_sends(group, wr);
      for (; wr != nullptr; wr = wr->next) journal.add(*wr);
      group.send.adopt();
      return 0;
    }
    const bool taken = journal_queued(group, wr, *bad_wr, error);
    group.send.adopt();
    const int shown = post_send_failed(group, error);
    return taken ? 0 : shown;
  }
  const uint64_t from = journal.head();
  ibv_send_wr* refused = wr;
  int error = 0;
  for (; wr != nullptr; wr = wr->next) {
    error = refusal_of(group, *wr);
    if (error != 0) {
      *bad_wr = wr;
      break;
    }
    journal.add(*wr);
  }
  if (const int on_path = send_appended(group, from)) {
    for (uint64_t position = from; position < journal.head(); position++) refused = refused->next;
    *bad_wr = refused;
    return on_path;
  }
  return error;
}

void start_slow(Group& group) {
  auto& batch = group.send.slow_batch;
  batch.mutex.lock();                        // complete_slow() or abort_slow() unlocks it
  auto lock = lock_queue(group.send, true);  // after the hot batch of another thread
  batch.is_open = true;
  group.send.build.fast = false;
  group.send.build.pending = 0;
  group.send.build.error = 0;
}

namespace {

// Gives the batch to the journal and to the path. The caller holds send.mutex.
int give_batch(Group& group) {
  const auto& build = group.send.build;
  auto& journal = group.send.journal;
  if (build.error != 0) return build.error;
  if (build.pending > 0 && group.send.route != Route::kError &&
      !send_has_room(group, build.pending - 1)) {
    return ENOMEM;
  }
  auto& entries = group.send.slow_batch.entries;
  const auto append_rest = [&](uint32_t from) {
    for (uint32_t i = from; i < build.pending; i++) journal.append_from(entries, i);
  };
  if (group.send.route != Route::kOnDefault) {
    const uint64_t from = journal.head();
    append_rest(0);
    return send_appended(group, from);
  }
  ibv_qp* real = group.real[kDefault];
  for (uint32_t i = 0; i < build.pending; i++) {
    ibv_send_wr wr, *bad = &wr;
    ibv_sge sges[group::kMaxSge];
    entries.rebuild(entries.head() + i, &wr, sges);
    const int error = real->context->ops.post_send(real, &wr, &bad);
    if (error != 0) {
      // The layer takes over this request, and with it all later requests of the batch.
      const bool taken = bad == nullptr && takes_over(group, error);
      if (taken) append_rest(i);
      const int shown = post_send_failed(group, error);
      return taken ? 0 : shown;
    }
    prove_sends(group, &wr);
    journal.append_from(entries, i);
  }
  return 0;
}

}  // namespace

int complete_slow(Group& group) {
  std::lock_guard built(group.send.slow_batch.mutex, std::adopt_lock);
  auto lock = lock_queue(group.send, true);
  group.send.slow_batch.is_open = false;
  build_anew(group);
  const int error = give_batch(group);
  if (group.send.route == Route::kOnDefault) group.send.adopt();  // the next batch may be fast
  return error;
}

void abort_slow(Group& group) {
  std::lock_guard built(group.send.slow_batch.mutex, std::adopt_lock);
  std::lock_guard lock(group.send.mutex);
  group.send.slow_batch.is_open = false;
  build_anew(group);
}

namespace {

bool device_is_gone(int error) {
  return std::abs(error) == EIO || std::abs(error) == ENODEV;
}

}  // namespace

bool takes_over(Group& group, int error) {
  if (!device_is_gone(error) || !holds_back_refusal(group, kDefault)) return false;
  group.send.given_from = UINT64_MAX;  // nobody knows which requests the NIC has found
  return true;
}

bool journal_queued(Group& group, const ibv_send_wr* wr, const ibv_send_wr* bad, int error) {
  const bool taken = bad == nullptr && takes_over(group, error);
  if (bad == nullptr && !taken && device_is_gone(error)) return false;
  for (; wr != bad; wr = wr->next) group.send.journal.add(*wr);
  return taken;
}

int post_send_failed(Group& group, int error) {
  if (device_is_gone(error)) {
    group::fault_sink->fault(&group, fsm::Event::kPathFault, kDefault,
                             {"the device refused a request", group::Detector::kPost});
  }
  return error;
}

namespace {

// Posts a receive on the current path, and returns 0 or an errno. Sets `waits` when the receive
// waits in the journal instead: its region is still being registered on that NIC, or an earlier
// receive waits.
int post_recv_on_path(Group& group, const ibv_recv_wr& wr, bool* waits) {
  ibv_recv_wr translated = wr, *bad;
  ibv_sge sges[group::kMaxSge];
  translated.next = nullptr;
  translated.sg_list = sges;
  std::copy_n(wr.sg_list, wr.num_sge, sges);
  const int member = group.life.path.member;
  const auto state = group::translate_local(*group.context, member, sges, wr.num_sge);
  if (state == group::KeyState::kMissing) return EINVAL;
  *waits = state == group::KeyState::kPending || group.recv.posted != group.recv.journal.head();
  if (*waits) {
    if (group.life.is_alone) return EINVAL;
    group::fault_sink->pump_wanted(&group);
    return 0;
  }
  ibv_qp* real = group.real[member];
  const int error = real->context->ops.post_recv(real, &translated, &bad);
  if (error == 0 || !group::post_blames_path(error)) return error;
  if (!holds_back_refusal(group, member)) return error;
  // This receive waits in the journal for the next path, and so do all later ones.
  group.recv.route = Route::kParked;
  group::fault_sink->fault(&group, fsm::Event::kPathFault, member,
                           {"a receive could not be posted", group::Detector::kPost});
  return 0;
}

}  // namespace

int post_recv_slow(Group& group, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  auto lock = lock_queue(group.recv, true);
  auto& journal = group.recv.journal;
  if (group.recv.route == Route::kOnDefault) {
    ibv_qp* real = group.real[kDefault];
    const int error = real->context->ops.post_recv(real, wr, bad_wr);
    const ibv_recv_wr* end = error == 0 ? nullptr : *bad_wr;
    if (end == nullptr) prove_receives(group, wr);
    for (; wr != end; wr = wr->next) journal.append(*wr);
    group.recv.adopt();
    return error;
  }
  for (; wr != nullptr; wr = wr->next) {
    int error = 0;
    bool waits = false;
    const uint64_t outstanding = journal.head() - group.counters.done[1];
    if (wr->num_sge < 0 || static_cast<uint32_t>(wr->num_sge) > group.cap.max_recv_sge) {
      error = EINVAL;
    } else if (group.recv.route != Route::kError && outstanding >= journal.depth()) {
      error = ENOMEM;
    } else if (group.recv.route == Route::kOnPath) {
      error = post_recv_on_path(group, *wr, &waits);
    }
    if (error != 0) {
      *bad_wr = wr;
      return error;
    }
    journal.append(*wr);
    if (group.recv.route == Route::kOnPath && !waits) group.recv.posted = journal.head();
    if (group.recv.route == Route::kError) group::flush_recv(group, journal.head() - 1);
  }
  return 0;
}

}  // namespace shift::ops
