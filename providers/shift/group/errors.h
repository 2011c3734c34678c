// The error completions of a group's path: which the application sees, and when (docs/protocol.md,
// step 1). `member` is the one whose CQ has given the error.
#pragma once

#include <atomic>
#include <vector>

#include "group/completion_queue.h"

namespace shift::group {

struct ReceiveSlot;

// Errors that wait for the NIC's answer: its command thread is asked whether the port is up, since
// the errors of a NIC that is going are not believed. The completions stay in their order, and the
// hot paths of their CQs are barred meanwhile. They are added under one CQ's mutex and
// Group::errors_mutex, and taken under both CQs' mutexes.
struct KeptErrors {
  struct Kept {
    CompletionQueue* cq;
    Completion wc;
    ReceiveSlot* slot;  // of a shared queue; null: none
  };
  std::atomic<bool> is_open{false};
  std::vector<Kept> list;
};

// True for errors that only a broken path causes. A broken path may cause some other errors, too,
// and a NIC that is going may cause any error; all others are the application's own.
bool is_path_error(ibv_wc_status status);
const char* path_error_name(ibv_wc_status status);

// Puts the application's names into a completion of a real QP.
void translate(const Group& group, ibv_wc& wc);

// Holds back and reports an error completion of a guarded path. `slot`: the receive of the shared
// queue that it is for; null: it is for none. The caller holds cq.mutex and errors_mutex.
void error_take(CompletionQueue& cq, Group& group, int member, const Completion& wc,
                ReceiveSlot* slot);
// A request of the layer's own was flushed on a guarded path, which is as good a sign that the path
// has broken as a flush of the application's. The caller holds cq.mutex.
void own_flush_take(CompletionQueue& cq, Group& group, int member);

// From here on the member's errors are held back and reported. False: the application has seen an
// error already.
bool errors_hold(Group& group, int member);
// From here on the application sees the member's errors again, those that are kept included. False:
// an error was held back already, so it cannot see all of them.
[[nodiscard]] bool errors_pass(Group& group, int member);

// The NIC is to be believed: the application sees the errors that are kept, as on the stock
// library, and all that follow. False: none is kept, or they are not all, since the layer also
// keeps what a NIC refused (errors_pass() says so, too).
[[nodiscard]] bool kept_pass(Group& group, int member);
// The group leaves the path: the errors that are kept are held back for good. The caller holds both
// CQs' mutexes.
void kept_hold_back(Group& group);
// The group's QP is gone, and its completions with it. The caller holds cq.mutex.
void kept_forget(CompletionQueue& cq, Group& group);

}  // namespace shift::group
