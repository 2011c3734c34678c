// Notes of requests, and how they become full entries of the journals: the rest is read from the
// NIC's own queues.
#include <algorithm>

#include "group/journal.h"
#include "util/planted.h"

namespace shift::group {
namespace {

// So many completed requests are read as well, as far as their slots were not used again: the keys
// that they name are likely to be needed next.
constexpr int kCompletedToo = 16;

}  // namespace

void SendJournal::note(const SendNote& note) {
  notes_[head_.own() & mask_] = note;
  if (note.send_flags & IBV_SEND_SIGNALED) signaled_++;
  notifications_ += kNotificationOpcodes >> note.opcode & 1;
  ++head_;
}

uint32_t SendJournal::signaled_before(uint64_t end) const {
  uint64_t head;
  uint32_t signaled, before;
  do {
    before = taking_.load(std::memory_order_acquire);
    head = head_.seen();
    signaled = std::atomic_ref(signaled_).load(std::memory_order_acquire);
  } while (before % 2 != 0 || taking_.load(std::memory_order_relaxed) != before);
  if (all_signaled_ != 0) return unflagged_ + static_cast<uint32_t>(end);
  for (uint64_t i = end; i < head; i++) signaled -= is_flagged(notes_[i & mask_]);
  return signaled;
}

std::optional<uint64_t> SendJournal::first_incomplete_noted(uint32_t signaled_done, uint64_t end,
                                                            uint64_t oldest) const {
  uint32_t signaled = signaled_before(end);
  for (uint64_t position = end; position > std::max(noted_from_, oldest); position--) {
    if (!is_flagged(notes_[(position - 1) & mask_])) continue;
    if (static_cast<int32_t>(signaled - signaled_done) <= 0) return position;
    signaled--;
  }
  return std::nullopt;
}

void SendJournal::entries_from_notes() {
  const uint64_t head = head_, oldest = std::max(noted_from_, head > mask_ ? head - mask_ : 0);
  if (SHIFT_PLANT(count_off_by_one)) unflagged_++, signaled_++;
  uint32_t signaled = signaled_ = signaled_before(head), notifications = notifications_;
  for (uint64_t position = head; position > oldest; position--) {
    const SendNote& note = notes_[(position - 1) & mask_];
    SendEntry& entry = ring_[(position - 1) & mask_];
    entry = {};
    entry.wr_id = note.wr_id;
    if (SHIFT_PLANT(wr_id_of_another)) entry.wr_id = notes_[position & mask_].wr_id;
    entry.opcode = note.opcode;
    entry.send_flags = note.send_flags & ~unsigned{IBV_SEND_INLINE};
    entry.signaled_total = signaled;
    entry.notification_total = notifications;
    signaled -= is_flagged(note);
    notifications -= is_notification(note.opcode);
  }
  is_noting_ = false;
}

// Reads the rest of the entry. `end` is the block at which its request ends, and then the one at
// which it begins.
bool SendJournal::read_back(const RingReader& reader, uint64_t position, uint32_t* end) {
  SendEntry& entry = ring_[position & mask_];
  ibv_send_wr wr;
  ibv_sge sges[kMaxSge];
  const SentHint hint{entry.opcode, is_signaled(entry)};
  const SentRequest to{&wr, sges, max_sge_, extension(position), stride_};
  const uint32_t blocks = reader.table->send_before(&reader.rings, *end, &hint, &to);
  if (blocks == 0) return false;
  *end -= blocks;
  copy16(&entry, offsetof(SendEntry, remote_addr), &wr, offsetof(ibv_send_wr, wr));
  entry.num_sge = wr.num_sge;
  entry.imm_or_rkey = wr.imm_data;
  if (wr.send_flags & IBV_SEND_INLINE && !SHIFT_PLANT(inline_forgotten)) {
    entry.send_flags |= IBV_SEND_INLINE;
    entry.inline_length = wr.num_sge == 0 ? 0 : sges[0].length;
    return true;
  }
  entry.inline_length = 0;
  if (is_atomic(entry.opcode)) {
    keep_operands(position, wr.wr.atomic.compare_add, wr.wr.atomic.swap);
    entry.rkey = wr.wr.atomic.rkey;
  }
  if (wr.num_sge > 0) {
    entry.sge = sges[0];
    std::copy_n(sges, wr.num_sge, reinterpret_cast<ibv_sge*>(extension(position)));
  }
  return true;
}

void SendJournal::take_in(const RingReader& reader, uint32_t signaled_done) {
  if (!is_noting_) return;
  const uint64_t head = head_, first = first_incomplete(signaled_done);
  const uint64_t oldest = std::max(noted_from_, head > mask_ ? head - mask_ : 0);
  entries_from_notes();
  uint32_t end = reader.table->sends_end(&reader.rings);
  uint64_t known = head;
  for (int more = kCompletedToo; known > oldest; known--) {
    if (known <= first && more-- == 0) break;
    if (!read_back(reader, known - 1, &end) && !SHIFT_PLANT(slot_reused)) break;
  }
  if (known != noted_from_) known_from_ = known;
}

void SendJournal::note_again() {
  if (notes_ == nullptr || is_noting_) return;
  is_noting_ = true;
  noted_from_ = head_;
  unflagged_ = signaled_ - static_cast<uint32_t>(head_);
}

void SendJournal::note_no_more() {
  if (is_noting_) {
    entries_from_notes();
    known_from_ = head_;
  }
  notes_.reset();
}

void RecvJournal::entries_from_notes() {
  const uint64_t oldest = std::max(noted_from_, head_ > mask_ ? head_ - mask_ : 0);
  for (uint64_t position = oldest; position < head_; position++) {
    uint64_t* const entry = ring_.get() + (position & mask_) * stride_words_;
    entry[0] = notes_[position & mask_];
    entry[1] = 0;
  }
  is_noting_ = false;
}

void RecvJournal::take_in(const RingReader& reader, uint64_t consumed) {
  if (!is_noting_) return;
  const uint64_t first = std::max(noted_from_, consumed);
  entries_from_notes();
  uint64_t known = head_;
  for (; known > first; known--) {
    uint64_t* const entry = ring_.get() + ((known - 1) & mask_) * stride_words_;
    ibv_recv_wr wr;
    ibv_sge sges[kMaxSge];
    const auto age = static_cast<uint32_t>(head_ - known);
    const uint32_t max_sge = std::min<uint32_t>((stride_words_ - 2) / 2, kMaxSge);
    if (!reader.table->receive(&reader.rings, age, &wr, sges, max_sge)) break;
    entry[1] = static_cast<uint32_t>(wr.num_sge);
    std::memcpy(&entry[2], sges, sizeof(ibv_sge) * static_cast<size_t>(wr.num_sge));
  }
  if (known > noted_from_) known_from_ = known;
}

void RecvJournal::note_again() {
  if (notes_ == nullptr || is_noting_) return;
  is_noting_ = true;
  noted_from_ = head_;
}

void RecvJournal::note_no_more() {
  if (is_noting_) {
    entries_from_notes();
    known_from_ = head_;
  }
  notes_.reset();
}

}  // namespace shift::group
