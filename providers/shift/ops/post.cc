// The hot path of ibv_post_send and ibv_post_recv. All cold code is in post_slow.cc. Beside the
// NIC's own post function, a healthy call costs one store and one compare for its thread's slot,
// and the note or the entry in the journal.
#include "group/group.h"
#include "ops/post_slow.h"
#include "ops/tables.h"

namespace shift::ops {

using group::Bias;
using group::Group;
using group::kDefault;
using group::ThreadSlot;

namespace {

// The NIC has accepted only the WRs before `bad`. Leaves the hot section.
[[gnu::cold, gnu::noinline]] int post_send_partly(Group& group, const ibv_send_wr* wr,
                                                  ThreadSlot* self, int error) {
  const ibv_send_wr* const bad = *static_cast<ibv_send_wr**>(self->bad_wr);
  const bool taken = journal_queued(group, wr, bad, error);
  Bias::leave(group::tls_slot);
  const int shown = post_send_failed(group, error);
  return taken ? 0 : shown;
}

[[gnu::cold, gnu::noinline]] int post_recv_partly(Group& group, const ibv_recv_wr* wr,
                                                  ThreadSlot* self, int error) {
  const ibv_recv_wr* const bad = *static_cast<ibv_recv_wr**>(self->bad_wr);
  for (; wr != bad; wr = wr->next) group.recv.journal.append(*wr);
  Bias::leave(group::tls_slot);
  return error;
}

// What the journal keeps of a WR. It is a template argument, since it is known when the context is
// opened, and no manner should pay for another one.
enum class Keep : uint8_t {
  kEntry,
  kEntryAndPackets,  // the mode asks the peer's responder
  kNote,             // if the NIC's queue can be read; most can
  kNoteAndPackets,
};

// (Not inlined, because a loop that needs many registers has the caller save them.)
[[gnu::noinline]] void append_entries(Group& group, const ibv_send_wr* wr) {
  group.send.journal.append_chain(wr);
}
[[gnu::noinline]] void append_entries(Group& group, const ibv_recv_wr* wr) {
  group.recv.journal.append_chain(wr);
}

template <Keep keep>
[[gnu::always_inline]] inline int post_send_in(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad_wr) {
  Group* g = Group::from(qp);
  ThreadSlot* self = group::tls_slot;
  if (!g->send.bias.enter(self, &g->send)) [[unlikely]] {
    Bias::leave(self);
    return post_send_slow(*g, wr, bad_wr);
  }
  self->bad_wr = bad_wr;
  ibv_qp* real = g->real[kDefault].set_before();
  const int error = real->context->ops.post_send(real, wr, bad_wr);
  // The journal entries are made after the call, so that it holds only what the NIC has accepted. A
  // switch cannot come in between, because it waits until this thread leaves the hot section.
  if (error != 0) [[unlikely]]
    return post_send_partly(*g, wr, self, error);
  if constexpr (keep == Keep::kEntry) {
    g->send.journal.append_chain(wr);
  } else if constexpr (keep == Keep::kEntryAndPackets) {
    g->send.journal.add_chain(wr);
  } else if (g->send.journal.is_noting()) [[likely]] {
    g->send.journal.note_chain<keep == Keep::kNoteAndPackets>(wr);
  } else if constexpr (keep == Keep::kNote) {
    append_entries(*g, wr);
  } else {
    g->send.journal.add_chain(wr);
  }
  Bias::leave(self);
  return 0;
}

}  // namespace

int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad_wr) {
  return post_send_in<Keep::kEntry>(qp, wr, bad_wr);
}

int post_send_counted(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad_wr) {
  return post_send_in<Keep::kEntryAndPackets>(qp, wr, bad_wr);
}

int post_send_noted(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad_wr) {
  return post_send_in<Keep::kNote>(qp, wr, bad_wr);
}

int post_send_noted_counted(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad_wr) {
  return post_send_in<Keep::kNoteAndPackets>(qp, wr, bad_wr);
}

namespace {

template <Keep keep>
[[gnu::always_inline]] inline int post_recv_in(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  Group* g = Group::from(qp);
  ThreadSlot* self = group::tls_slot;
  if (!g->recv.bias.enter(self, &g->recv)) [[unlikely]] {
    Bias::leave(self);
    return post_recv_slow(*g, wr, bad_wr);
  }
  self->bad_wr = bad_wr;
  ibv_qp* real = g->real[kDefault].set_before();
  const int error = real->context->ops.post_recv(real, wr, bad_wr);
  if (error != 0) [[unlikely]]
    return post_recv_partly(*g, wr, self, error);
  if constexpr (keep == Keep::kEntry) {
    g->recv.journal.append_chain(wr);
  } else if (g->recv.journal.is_noting()) [[likely]] {
    g->recv.journal.note_chain(wr);
  } else {
    append_entries(*g, wr);
  }
  Bias::leave(self);
  return 0;
}

}  // namespace

int post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  return post_recv_in<Keep::kEntry>(qp, wr, bad_wr);
}

int post_recv_noted(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  return post_recv_in<Keep::kNote>(qp, wr, bad_wr);
}

}  // namespace shift::ops
