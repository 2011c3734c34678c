// One direction of a connection in a campaign: what its completions and its memory must be.
#include <algorithm>
#include <cstring>

#include "campaign_flow.h"

namespace cxemu::test {

namespace {

CqeOpcode receive_opcode(uint8_t wqe_opcode) {
  switch (wqe_opcode) {
    case kWqeSend:
      return kCqeRecvSend;
    case kWqeSendImm:
      return kCqeRecvSendImm;
    default:
      return kCqeRecvWriteImm;
  }
}

bool bytes_are(const Arena& arena, uint32_t offset, const std::vector<uint8_t>& bytes) {
  return std::equal(bytes.begin(), bytes.end(), arena.mr.bytes.begin() + offset);
}

}  // namespace

// ---- The sender's completions

void Flow::sent(const Completion& completion) {
  const bool error = completion.opcode == kCqeRequesterError;
  // Unsignaled WQEs before it completed silently; flushed ones all have completions.
  while (!flushing_ && !in_flight_.empty() && in_flight_.front().index != completion.wqe_counter) {
    const Op op = in_flight_.front();
    in_flight_.pop_front();
    if (!judge_.check(!op.signaled, where(op), ": no completion")) return;
    op_succeeded(op);
  }
  if (!judge_.check(!in_flight_.empty() && in_flight_.front().index == completion.wqe_counter,
                    "QP ", from_.number(), ": unexpected completion of WQE ",
                    completion.wqe_counter)) {
    return;
  }
  const Op op = in_flight_.front();
  in_flight_.pop_front();
  if (!error) {
    judge_.check(!flushing_, where(op), ": success after an error");
    judge_.check(op.signaled, where(op), ": completion that nobody asked for");
    judge_.check(completion.byte_count == op.plan->size, where(op), ": length ",
                 completion.byte_count);
    judge_.check(completion.wqe_opcode == op.plan->opcode, where(op), ": opcode ",
                 completion.wqe_opcode);
    op_succeeded(op);
    return;
  }
  const bool flush = completion.syndrome == kSyndromeFlush;
  if (flush) {
    judge_.check(flushing_ || stopping_, where(op), ": flushed, but nothing had failed");
  } else {
    judge_.check(options_.may_fail && !flushing_ && !stopping_, where(op), ": failed, syndrome ",
                 completion.syndrome);
    judge_.check(completion.syndrome == kSyndromeRetryExceeded ||
                     completion.syndrome == kSyndromeRnrRetryExceeded,
                 where(op), ": syndrome ", completion.syndrome);
    judge_.check(completion.syndrome != kSyndromeRnrRetryExceeded || op.plan->takes_receive(),
                 where(op), ": needs no receive, but RNR retries are exceeded");
    failed_ = true;
  }
  flushing_ = true;
  lost_.push_back(op);
}

void Flow::op_succeeded(const Op& op) {
  const Plan& plan = *op.plan;
  if (plan.takes_receive()) {
    judge_.check(op.take < receives_done_, where(op), ": acknowledged, but not received");
  }
  if (plan.is_write()) write_judge(op);
  if (plan.opcode == kWqeRead || plan.is_atomic()) fetched_judge(op);
}

void Flow::write_judge(const Op& op) {
  judge_.check(bytes_are(target_, op.region.offset, payload(*op.plan)), where(op),
               ": wrong data written");
  // The application uses the memory again, so a later write by the NIC would be detected.
  target_.fill(op.region, std::vector<uint8_t>(op.region.size, static_cast<uint8_t>(random_())));
  judge_.check(target_.intact(op.region), where(op), ": written beyond its end");
  target_.give_back(op.region);
}

void Flow::fetched_judge(const Op& op) {
  const Plan& plan = *op.plan;
  if (plan.opcode == kWqeRead) {
    judge_.check(bytes_are(fetched_, op.region.offset, payload(plan)), where(op),
                 ": wrong data read");
  } else {
    uint64_t original;
    memcpy(&original, fetched_.mr.bytes.data() + op.region.offset, sizeof original);
    if (plan.word == kWords) {
      shared_.originals.push_back(original);
    } else {
      judge_.check(original == op.original, where(op), ": returned ", original, " instead of ",
                   op.original);
    }
  }
  fetched_.fill(op.region, std::vector<uint8_t>(op.region.size, static_cast<uint8_t>(random_())));
  judge_.check(fetched_.intact(op.region), where(op), ": written beyond its end");
  fetched_.give_back(op.region);
}

// ---- The receiver's completions

void Flow::received(const Completion& completion) {
  const std::string name =
      "QP " + std::to_string(to_.number()) + ", receive " + std::to_string(receives_done_);
  if (!judge_.check(!receives_.empty(), name, ": was never posted")) return;
  const Receive receive = receives_.front();
  const Plan& plan = *receive.plan;
  const auto index = static_cast<uint16_t>(receives_posted_ - receives_.size());
  receives_.pop_front();
  judge_.check(completion.wqe_counter == index, name, ": WQE ", completion.wqe_counter);
  const bool error = completion.opcode == kCqeResponderError;
  if (error) {
    judge_.check(completion.syndrome == kSyndromeFlush, name, ": syndrome ", completion.syndrome);
    judge_.check(options_.may_fail || stopping_, name, ": flushed, but nothing had failed");
    receives_flushing_ = true;
    inbox_.accept(receive.region);  // a message may have been cut off in it
    return;
  }
  judge_.check(!receives_flushing_, name, ": success after a flush");
  judge_.check(receives_done_ < takes_posted_, name, ": nothing was sent that takes it");
  judge_.check(completion.opcode == receive_opcode(plan.opcode), name, ": opcode ",
               int{completion.opcode});
  judge_.check(completion.byte_count == plan.size, name, ": length ", completion.byte_count,
               " instead of ", plan.size);
  judge_.check(plan.opcode == kWqeSend || completion.imm_be == plan.imm_be, name, ": immediate ",
               completion.imm_be);
  const uint32_t placed = plan.is_send() ? plan.size : 0;
  if (placed > 0) {
    judge_.check(bytes_are(inbox_, receive.region.offset, payload(plan)), name, ": wrong data");
  }
  judge_.check(inbox_.intact(receive.region, placed), name, ": written beyond the message");
  inbox_.fill(receive.region,
              std::vector<uint8_t>(receive.region.size, static_cast<uint8_t>(random_())));
  inbox_.give_back(receive.region);
  receives_done_++;
}

// ---- The end

// Of the operations that were never acknowledged, a beginning may have been executed, in order, the
// last of it in part.
void Flow::leftovers_judge() {
  bool ended = false;
  for (const Op& op : lost_) {
    const Plan& plan = *op.plan;
    const bool received = plan.takes_receive() && op.take < receives_done_;
    if (plan.is_send()) {
      judge_.check(!received || !ended, where(op), ": received, though one before it was not");
      ended |= !received;
    } else if (plan.is_write()) {
      const std::vector<uint8_t> wanted = payload(plan);
      const uint8_t* now = target_.mr.bytes.data() + op.region.offset;
      const auto same = static_cast<uint32_t>(
          std::mismatch(wanted.begin(), wanted.end(), now).first - wanted.begin());
      const bool whole_packets = same % options_.mtu == 0;
      judge_.check(same == plan.size || whole_packets, where(op), ": a part of a packet written");
      for (uint32_t at = same; at < plan.size; at++) {
        const bool old = now[at] == static_cast<uint8_t>(~wanted[at]);
        if (!judge_.check(old, where(op), ": written with a hole at ", same)) break;
      }
      judge_.check(same == 0 || !ended, where(op), ": written, though one before it was not");
      const bool whole = same == plan.size;
      if (plan.opcode == kWqeWriteImm && plan.size > 0) {
        judge_.check(whole == received, where(op), ": its receive and its data do not agree");
      }
      if (plan.size > 0) ended |= !whole;
      target_.accept(op.region);
    } else if (plan.opcode == kWqeRead || plan.is_atomic()) {
      fetched_.accept(op.region);
    }
  }
}

// Each word must have the value that the completed atomics and a beginning of the others produce.
void Flow::words_judge() {
  for (uint32_t word = 0; word < kWords; word++) {
    uint64_t now;
    memcpy(&now, words_.bytes.data() + word * 8, sizeof now);
    bool found = now == word_values_[word];
    for (const Op& op : lost_) {
      found |= op.plan->is_atomic() && op.plan->word == word && now == op.original;
    }
    judge_.check(found, "QP ", from_.number(), ": word ", word, " is ", now, " instead of ",
                 word_values_[word]);
  }
}

void Flow::finish() {
  // These were acknowledged before the application stopped; otherwise there would have been a
  // flush.
  while (!flushing_ && !in_flight_.empty() && !in_flight_.front().signaled) {
    op_succeeded(in_flight_.front());
    in_flight_.pop_front();
  }
  judge_.check(in_flight_.empty(), "QP ", from_.number(), ": ", in_flight_.size(),
               " WQEs without completion");
  if (stopping_) {
    judge_.check(receives_.empty(), "QP ", to_.number(), ": ", receives_.size(),
                 " receives without completion");
  } else {
    judge_.check(receives_done_ == takes_posted_, "QP ", to_.number(), ": ", receives_done_,
                 " messages received instead of ", takes_posted_);
  }
  leftovers_judge();
  words_judge();
  judge_.check(source_.intact() && readable_.intact(), "QP ", from_.number(),
               ": memory changed that is only read");
  judge_.check(fetched_.intact(), "QP ", from_.number(), ": stray bytes where READs go");
  judge_.check(target_.intact(), "QP ", from_.number(), ": stray bytes where WRITEs go");
  judge_.check(inbox_.intact(), "QP ", to_.number(), ": stray bytes where SENDs go");
}

}  // namespace cxemu::test
