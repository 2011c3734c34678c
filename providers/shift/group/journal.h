// What is posted and not yet completed, with all that is needed to post each WR again. There is one
// ring for each send and receive queue; the hot path writes it, and it is read only when the path
// changes.
//
// The ring needs no tail. It has twice the slots of the work queue, and the provider beneath
// refuses a WR when its own queue is full, so a slot is overwritten only long after its WR was
// reaped. How far the queue has completed follows from a count: of signaled completions seen (send)
// or of receives consumed (receive).
//
// Where the layer can read the NIC's own queues (util/work_rings.h), the hot path keeps only a note
// of each WR: what the NIC's queue does not hold. When the hot path is barred, take_in() makes full
// entries of the notes; whatever is appended from then on has one at once.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>

#include "util/add_bit.h"
#include "util/tally.h"
#include "util/work_rings.h"

namespace shift::group {

// The largest number of SGEs in a WR; for the arrays that rebuild() fills.
inline constexpr int kMaxSge = 64;

// Bit n is set if opcode n consumes a receive at the peer (glossary: notification).
inline constexpr uint32_t kNotificationOpcodes = 1u << IBV_WR_RDMA_WRITE_WITH_IMM |
                                                 1u << IBV_WR_SEND | 1u << IBV_WR_SEND_WITH_IMM |
                                                 1u << IBV_WR_SEND_WITH_INV;
inline constexpr uint32_t kAtomicOpcodes =
    1u << IBV_WR_ATOMIC_CMP_AND_SWP | 1u << IBV_WR_ATOMIC_FETCH_AND_ADD;

constexpr bool is_notification(uint32_t opcode) {
  return kNotificationOpcodes >> opcode & 1;
}
constexpr bool is_atomic(uint32_t opcode) {
  return kAtomicOpcodes >> opcode & 1;
}
// A memory window is an object of one NIC. These requests name a window: SEND_WITH_INV one of the
// peer's, the others one of this end's.
constexpr bool is_window_request(uint32_t opcode) {
  return opcode == IBV_WR_LOCAL_INV || opcode == IBV_WR_BIND_MW || opcode == IBV_WR_SEND_WITH_INV;
}

// Fills one cache line. The middle fields lie in the order of ibv_send_wr, so that two 16-byte
// moves copy them.
struct alignas(64) SendEntry {
  uint64_t wr_id;
  // Running counts up to and including this WR. Each wraps around on its own.
  uint32_t signaled_total;
  uint32_t notification_total;
  int32_t num_sge;
  uint32_t opcode;
  uint32_t send_flags;
  uint32_t imm_or_rkey;
  uint64_t remote_addr;
  uint32_t rkey;
  uint32_t inline_length;  // valid with IBV_SEND_INLINE
  ibv_sge sge;             // the first one; the others lie in the extension
};
static_assert(sizeof(SendEntry) == 64);

// What is kept of a WR that the NIC's queue holds.
struct SendNote {
  uint64_t wr_id;
  // The fields of ibv_send_wr, in their order. The builder interface leaves out IBV_SEND_INLINE.
  uint32_t opcode;
  uint32_t send_flags;
};

// The NIC's queues of the QP that the hot path posts to, and how to read them.
struct RingReader {
  const WorkRingTable* table = nullptr;  // null: they cannot be read
  WorkRings rings{};
};

class SendJournal {
 public:
  // `depth` is max_send_wr. `by_notes`: the hot path begins with notes. Throws std::bad_alloc.
  void init(uint32_t depth, uint32_t max_sge, uint32_t max_inline, bool all_signaled,
            bool by_notes = false);

  // ---- notes

  // Whether appending makes a note now.
  bool is_noting() const { return is_noting_; }
  // Whether it makes notes when the hot path begins again.
  bool may_note() const { return notes_ != nullptr; }
  // Appends a whole chain that the provider beneath has accepted. It must be noting. `counted`:
  // counts packets, whether count_packets() was called or not.
  template <bool counted = false>
  [[gnu::always_inline]] void note_chain(const ibv_send_wr* wr) {
    // Most calls post one WR. Its counts stay in memory, since to load and store them costs more.
    if (wr == nullptr) [[unlikely]]
      return;
    const uint64_t kind = note_into(notes_[head_.own() & mask_], *wr);
    add_bit(signaled_, kind, kSignaledBit);
    add_bit(notifications_, kNotificationOpcodes, kind);
    ++head_;
    if constexpr (counted) packets_ += packets_of(*wr);
    if (wr->next != nullptr) note_rest<counted>(wr->next);
  }
  // For the builder interface: the note after `pending` uncommitted ones, and the step that takes
  // these in, among them so many signaled WRs and notifications.
  SendNote& note_slot(uint32_t pending) { return notes_[(head_.own() + pending) & mask_]; }
  [[gnu::always_inline]] void take_notes(uint32_t pending, uint32_t signaled,
                                         uint32_t notifications) {
    // See taking_: the releases let a thread that sees a new count also see that it is odd.
    const uint32_t taking = taking_.load(std::memory_order_relaxed);
    taking_.store(taking + 1, std::memory_order_relaxed);
    std::atomic_ref(signaled_).store(signaled_ + signaled, std::memory_order_release);
    notifications_ += notifications;
    head_.publish(head_.own() + pending);
    taking_.store(taking + 2, std::memory_order_release);
  }
  // Makes full entries of the notes, and of all that is appended from here on, with what the NIC's
  // queue holds. `signaled_done` as for first_incomplete(). No thread may post meanwhile.
  void take_in(const RingReader& reader, uint32_t signaled_done);
  // The hot path begins again, so appending makes notes if it may.
  void note_again();
  // It makes none any more: the NIC's queue is not as it is known. What was noted is lost.
  void note_no_more();
  // rebuild() works for positions from here on. Earlier ones are completed, or the NIC's queue
  // could not be read.
  uint64_t known_from() const { return known_from_; }
  uint64_t wr_id(uint64_t position) const {
    return is_noted(position) ? notes_[position & mask_].wr_id : at(position).wr_id;
  }

  // ---- entries

  // Appends a WR that the provider beneath accepted, or that is parked.
  [[gnu::always_inline]] void append(const ibv_send_wr& wr) {
    if (is_noting_) return note({wr.wr_id, wr.opcode, wr.send_flags});
    SendEntry& entry = ring_[head_.own() & mask_];
    entry.wr_id = wr.wr_id;
    copy16(&entry, offsetof(SendEntry, num_sge), &wr, offsetof(ibv_send_wr, num_sge));
    copy16(&entry, offsetof(SendEntry, remote_addr), &wr, offsetof(ibv_send_wr, wr));
    constexpr uint32_t kRareOpcodes = kAtomicOpcodes | 1u << IBV_WR_BIND_MW;
    const uint32_t rare = static_cast<uint32_t>(wr.num_sge ^ 1) |
                          (wr.send_flags & IBV_SEND_INLINE) | (kRareOpcodes >> wr.opcode & 1);
    if (rare == 0) [[likely]] {
      std::memcpy(&entry.sge, wr.sg_list, sizeof entry.sge);
    } else {
      append_rare(entry, wr);
    }
    count(entry);
  }

  // Like append(), for a whole accepted chain.
  [[gnu::always_inline]] void append_chain(const ibv_send_wr* wr) {
    // The members are copied into registers for the length of the chain, because the compiler must
    // assume that the ring overlaps them.
    SendEntry* const ring = ring_.get();
    const uint32_t mask = mask_, all_signaled = all_signaled_;
    uint64_t head = head_.own();
    uint32_t signaled = signaled_, notifications = notifications_;
    for (; wr != nullptr; wr = wr->next) {
      const uint32_t opcode = wr->opcode;
      if (wr->num_sge != 1 || opcode > IBV_WR_RDMA_READ || (wr->send_flags & IBV_SEND_INLINE))
          [[unlikely]]
        break;
      SendEntry& entry = ring[head & mask];
      entry.wr_id = wr->wr_id;
      copy16(&entry, offsetof(SendEntry, num_sge), wr, offsetof(ibv_send_wr, num_sge));
      copy16(&entry, offsetof(SendEntry, remote_addr), wr, offsetof(ibv_send_wr, wr));
      std::memcpy(&entry.sge, wr->sg_list, sizeof entry.sge);
      entry.signaled_total = signaled += (wr->send_flags | all_signaled) >> 1 & 1;
      entry.notification_total = notifications += opcode - IBV_WR_RDMA_WRITE_WITH_IMM <= 2;
      ++head;
    }
    head_ = head;
    signaled_ = signaled;
    notifications_ = notifications;
    if (wr != nullptr) [[unlikely]]
      append_rest(wr);
  }

  // For the builder interface: the entry after `pending` uncommitted ones. The builder fills it
  // piece by piece.
  SendEntry& slot(uint32_t pending) { return ring_[(head_.own() + pending) & mask_]; }
  uint8_t* extension(uint64_t position) { return extension_.get() + (position & mask_) * stride_; }
  // Takes in the next `pending` entries, which slot() gave out: all of them in one step, for a
  // thread that reads head_seen(). `counted`: packets may be counted.
  template <bool counted>
  [[gnu::always_inline]] void append_batch(uint32_t pending) {
    const uint64_t head = head_.own(), end = head + pending;
    for (uint64_t position = head; position < end; position++) {
      SendEntry& entry = ring_[position & mask_];
      entry.signaled_total = signaled_ += (entry.send_flags | all_signaled_) >> 1 & 1;
      entry.notification_total = notifications_ += kNotificationOpcodes >> entry.opcode & 1;
      if (counted && mtu_ != 0) packets_ += packets_at(position);
    }
    head_.publish(end);
  }
  // Takes in an entry that another journal for the same queue has given out as slot(pending).
  void append_from(SendJournal& other, uint32_t pending);

  // ---- for modes that ask the responder: how many packets each WR takes on a connection

  // From here on, add() and add_chain() count the packets of what they append. `mtu` is in bytes, a
  // power of two. Nothing was appended yet.
  void count_packets(uint32_t mtu) {
    mtu_ = mtu;
    mtu_shift_ = static_cast<uint32_t>(std::countr_zero(mtu));
    packets_ = 0;
  }
  uint32_t mtu() const { return mtu_; }  // 0: what is counted means nothing
  uint32_t mtu_shift() const { return mtu_shift_; }
  // All packets that were counted so far, modulo 2^32 (a PSN is the low 24 bits of such a number).
  uint32_t packets() const { return packets_; }
  // Not for a position that is only noted, nor for one before known_from().
  uint32_t packets_at(uint64_t position) const;
  // How many packets follow the first one of a message with so many bytes.
  [[gnu::always_inline]] static uint64_t packets_further(uint64_t length, uint32_t mtu_shift) {
    return (length - (length != 0)) >> mtu_shift;
  }
  // For the builder interface, whose setters know the lengths of what take_notes() takes in.
  void take_packets(uint32_t packets) { packets_ += packets; }
  // Like append() and append_chain(), but they count packets if the mode wants it; for callers that
  // do not know the mode.
  void add(const ibv_send_wr& wr) {
    append(wr);
    if (mtu_ != 0) packets_ += packets_of(wr);
  }
  void add_chain(const ibv_send_wr* wr);

  void keep_atomic(uint32_t pending, uint64_t compare_add, uint64_t swap);
  // Keeps only the addresses of the window and its region: both stay the application's until the
  // request completes.
  void keep_bind(uint32_t pending, ibv_mw* mw, uint32_t rkey, const ibv_mw_bind_info& info);
  // Forgets the entries from `position` on, which must exist: the NIC has not accepted them after
  // all. Never while it is noting: on the default path the NIC accepts a WR before it is appended.
  void take_back(uint64_t position);

  // Lets the running counts start elsewhere: tests start just before they wrap around.
  void start_counts_at(uint32_t signaled, uint32_t notifications, uint32_t packets = 0) {
    signaled_ = unflagged_ = signaled;
    notifications_ = notifications;
    packets_ = packets;
  }

  // The number of WRs that were ever appended. Any thread may call it.
  uint64_t head() const { return head_; }
  // The same; the entries of a batch before it may be read although its owner goes on.
  uint64_t head_seen() const { return head_.seen(); }
  uint32_t depth() const { return depth_; }
  uint32_t extension_size() const { return stride_; }
  uint32_t notifications_posted() const { return notifications_; }
  // Not for a position that is only noted.
  const SendEntry& at(uint64_t position) const { return ring_[position & mask_]; }
  bool is_signaled(const SendEntry& entry) const {
    return (entry.send_flags | all_signaled_) & IBV_SEND_SIGNALED;
  }

  // How many signaled WRs were appended, modulo 2^32. Any thread may ask.
  uint32_t signaled() const { return std::atomic_ref(signaled_).load(std::memory_order_acquire); }

  // The position of the first WR that is not known to be completed, when `signaled_done` signaled
  // completions were seen. It looks through the whole ring; cold.
  uint64_t first_incomplete(uint32_t signaled_done) const {
    return first_incomplete(signaled_done, head_);
  }
  // The same among the WRs before `end`, or `end`.
  uint64_t first_incomplete(uint32_t signaled_done, uint64_t end) const;

  // Fills `wr` and `sges` (with room for max_sge) from an entry. The keys are those of the
  // application; `wr->next` is null.
  void rebuild(uint64_t position, ibv_send_wr* wr, ibv_sge* sges) const;

 private:
  // Copies 16 bytes in one move: two or four neighbouring fields.
  [[gnu::always_inline]] static void copy16(void* to, size_t to_at, const void* from,
                                            size_t from_at) {
    std::memcpy(static_cast<char*>(to) + to_at, static_cast<const char*>(from) + from_at, 16);
  }
  [[gnu::always_inline]] void count(SendEntry& entry) {
    entry.signaled_total = signaled_ += (entry.send_flags | all_signaled_) >> 1 & 1;
    entry.notification_total = notifications_ += kNotificationOpcodes >> entry.opcode & 1;
    ++head_;
  }
  // The packets of a WR that was accepted.
  [[gnu::always_inline]] uint32_t packets_of(const ibv_send_wr& wr) const {
    if (wr.num_sge != 1 || wr.opcode > IBV_WR_RDMA_READ) [[unlikely]]
      return packets_of_rare(wr);
    return 1 + static_cast<uint32_t>(packets_further(wr.sg_list->length, mtu_shift_));
  }
  [[gnu::noinline]] uint32_t packets_of_rare(const ibv_send_wr& wr) const;
  uint32_t packets_of(uint32_t opcode, uint64_t length) const;
  // How many bytes the WR moves. For an atomic or a window it means nothing.
  uint64_t length_at(uint64_t position) const;
  // Appends the rest of a chain, from its first WR of a less common shape on.
  [[gnu::noinline]] void append_rest(const ibv_send_wr* wr);
  void append_inline(const ibv_send_wr& wr);
  void keep_operands(uint64_t position, uint64_t compare_add, uint64_t swap);
  void keep_inline(SendEntry& entry, const ibv_send_wr& wr);
  [[gnu::cold, gnu::noinline]] void append_rare(SendEntry& entry, const ibv_send_wr& wr);

  bool is_noted(uint64_t position) const { return is_noting_ && position >= noted_from_; }
  // Where a note's second word, read as a number, has IBV_SEND_SIGNALED.
  static constexpr unsigned kSignaledBit = 33;
  static_assert(std::endian::native == std::endian::little && IBV_SEND_SIGNALED == 2);
  // Returns the opcode and the flags, as they lie in memory.
  [[gnu::always_inline]] static uint64_t note_into(SendNote& note, const ibv_send_wr& wr) {
    uint64_t kind;
    std::memcpy(&kind, &wr.opcode, sizeof kind);
    note.wr_id = wr.wr_id;
    std::memcpy(&note.opcode, &kind, sizeof kind);
    return kind;
  }
  // Apart from note_chain(), so that this one does not keep its counts in registers.
  template <bool counted>
  [[gnu::noinline]] void note_rest(const ibv_send_wr* wr) {
    // See append_chain().
    char* const notes = reinterpret_cast<char*>(notes_.get());
    const uint64_t mask = uint64_t{mask_} * sizeof(SendNote);
    uint64_t at = head_.own() * sizeof(SendNote);
    uint32_t signaled = signaled_, notifications = notifications_;
    [[maybe_unused]] uint32_t packets = packets_;
    do {
      auto* const note = reinterpret_cast<SendNote*>(notes + (at & mask));
      const uint64_t kind = note_into(*note, *wr);
      add_bit(signaled, kind, kSignaledBit);
      add_bit(notifications, kNotificationOpcodes, kind);
      if constexpr (counted) packets += packets_of(*wr);
      at += sizeof(SendNote);
      wr = wr->next;
    } while (wr != nullptr);
    head_ = at / sizeof(SendNote);
    signaled_ = signaled;
    notifications_ = notifications;
    if constexpr (counted) packets_ = packets;
  }
  bool is_flagged(const SendNote& note) const {
    return (note.send_flags | all_signaled_) & IBV_SEND_SIGNALED;
  }
  void note(const SendNote& note);
  // first_incomplete() among the notes before `end`; nullopt: it is before them.
  std::optional<uint64_t> first_incomplete_noted(uint32_t signaled_done, uint64_t end,
                                                 uint64_t oldest) const;
  // How many signaled WRs lie before `end`, which all are noted.
  uint32_t signaled_before(uint64_t end) const;
  // Makes entries of the notes, without what the NIC's queue holds.
  void entries_from_notes();
  bool read_back(const RingReader& reader, uint64_t position, uint32_t* end);

  std::unique_ptr<SendEntry[]> ring_;
  Tally head_;
  mutable uint32_t signaled_ = 0;  // mutable for atomic_ref
  uint32_t notifications_ = 0;
  uint32_t mask_ = 0;
  uint32_t all_signaled_ = 0;  // IBV_SEND_SIGNALED if sq_sig_all is set
  uint32_t stride_ = 0;        // bytes of extension per entry
  uint32_t depth_ = 0;
  uint32_t mtu_ = 0;
  uint32_t mtu_shift_ = 0;
  uint32_t packets_ = 0;
  std::unique_ptr<uint8_t[]> extension_;  // further SGEs, inline payload, operands of atomics

  std::unique_ptr<SendNote[]> notes_;  // null: no notes are made
  bool is_noting_ = false;
  uint32_t max_sge_ = 0;
  // With sq_sig_all the notes do not count signaled WRs, since all are: the number of all WRs and
  // this one are the count.
  uint32_t unflagged_ = 0;
  uint64_t noted_from_ = 0;  // the entries before it are full; valid while it is noting
  uint64_t known_from_ = 0;
  // Odd while take_notes() works: for a thread that reads the counts meanwhile.
  std::atomic<uint32_t> taking_{0};
};

class RecvJournal {
 public:
  // Like SendJournal::init(); a note is the wr_id.
  void init(uint32_t depth, uint32_t max_sge, bool by_notes = false);

  // See SendJournal.
  bool is_noting() const { return is_noting_; }
  [[gnu::always_inline]] void note_chain(const ibv_recv_wr* wr) {
    if (wr == nullptr) [[unlikely]]
      return;
    notes_[head_++ & mask_] = wr->wr_id;
    if (wr->next != nullptr) note_rest(wr->next);
  }
  // `consumed`: how many receives are over.
  void take_in(const RingReader& reader, uint64_t consumed);
  void note_again();
  void note_no_more();
  uint64_t known_from() const { return known_from_; }

  [[gnu::always_inline]] void append_chain(const ibv_recv_wr* wr) {
    uint64_t* const ring = ring_.get();
    const uint64_t mask = mask_, stride_words = stride_words_;
    uint64_t head = head_;
    if (wr == nullptr) [[unlikely]]
      return;
    do {
      if (wr->num_sge != 1) [[unlikely]] {
        head_ = head;
        return append_rest(wr);
      }
      uint64_t* entry = ring + (head & mask) * stride_words;
      entry[0] = wr->wr_id;
      entry[1] = 1;
      std::memcpy(&entry[2], wr->sg_list, sizeof(ibv_sge));
      ++head;
      wr = wr->next;
    } while (wr != nullptr);
    head_ = head;
  }

  void append(const ibv_recv_wr& wr);

  uint64_t head() const { return head_; }
  uint32_t depth() const { return depth_; }
  uint64_t wr_id(uint64_t position) const {
    const bool is_noted = is_noting_ && position >= noted_from_;
    return is_noted ? notes_[position & mask_] : ring_[(position & mask_) * stride_words_];
  }
  // Not for a position that is only noted.
  void rebuild(uint64_t position, ibv_recv_wr* wr, ibv_sge* sges) const;

 private:
  [[gnu::noinline]] void note_rest(const ibv_recv_wr* wr) {
    uint64_t* const notes = notes_.get();
    const uint64_t mask = mask_;
    uint64_t head = head_;
    do {
      notes[head & mask] = wr->wr_id;
      ++head;
      wr = wr->next;
    } while (wr != nullptr);
    head_ = head;
  }
  [[gnu::cold, gnu::noinline]] void append_rest(const ibv_recv_wr* wr);
  void entries_from_notes();

  std::unique_ptr<uint64_t[]> ring_;  // wr_id, num_sge, sges
  uint64_t head_ = 0;
  uint32_t mask_ = 0;
  uint32_t stride_words_ = 0;
  uint32_t depth_ = 0;
  std::unique_ptr<uint64_t[]> notes_;  // null: no notes are made
  bool is_noting_ = false;
  uint64_t noted_from_ = 0;
  uint64_t known_from_ = 0;
};

}  // namespace shift::group
