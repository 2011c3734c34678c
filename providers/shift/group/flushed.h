// What the flushes of a path that was shut tell of its requests: for each request in the send queue
// that the NIC has not completed, a QP in ERR gives one error completion, in order, also if the
// request has no signal. So the first of them tells what was completed, though no completion says
// so.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <optional>

namespace shift::group {

struct CompletionQueue;
struct Group;

// Notes an error completion of the committed path. `is_shared`: it is that of a receive of a shared
// queue. The caller holds cq.mutex and errors_mutex.
void flush_note(const CompletionQueue& cq, Group& group, const ibv_wc& wc, bool is_shared);
// The position of the first request that the path had not completed; nullopt: the completions do
// not agree with the journal. All of them must have come, and the queues must be parked. The caller
// holds the mutexes of both queues and of the CQs.
std::optional<uint64_t> first_flushed(const Group& group);

}  // namespace shift::group
