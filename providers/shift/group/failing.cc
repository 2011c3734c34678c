#include "group/failing.h"

#include <algorithm>
#include <cerrno>

#include "group/completion.h"
#include "group/context.h"
#include "group/group.h"
#include "group/member_qp.h"
#include "group/park.h"
#include "group/shared_queue.h"

namespace shift::group {
namespace {

ibv_wc error_of(const Group& group, uint64_t wr_id, ibv_wc_status status, uint32_t vendor_error) {
  ibv_wc wc{};
  wc.wr_id = wr_id;
  wc.status = status;
  wc.vendor_err = vendor_error;
  wc.qp_num = group.qpn();
  return wc;
}

constexpr uint32_t kVendorFlushed = 0xf9;  // the vendor error that ConnectX gives for a flush

// Gives an error to each request before `end`. The caller holds send.mutex and the CQs' mutexes.
void fail_sends(Group& group, Errors::Owed& owed, uint64_t end) {
  for (; owed.position < end; owed.position++) {
    put_side(*group.send_cq, error_of(group, group.send.journal.wr_id(owed.position), owed.status,
                                      owed.vendor_error));
    owed.status = IBV_WC_WR_FLUSH_ERR;
    owed.vendor_error = kVendorFlushed;
  }
}

// The first request before `end` that is not known to be over.
uint64_t first_open(const Group& group, uint64_t end) {
  const auto done = static_cast<uint32_t>(group.counters.done[0]);
  return std::max(group.send.journal.first_incomplete(done, end), group.send.drained_to);
}

}  // namespace

void fail(Group& group) {
  Group* const self = &group;
  park({&self, 1});
  // Nothing may be written to the application's memory once it has been given the error (C3, C6). A
  // dead device refuses ERR, but it writes nothing either. A NIC that is late is not waited for.
  for (int m = 0; m < group.context->member_count; m++) (void)member_qp_shut(group, m);
  fail_stopped(group);
}

void fail_stopped(Group& group) {
  std::lock_guard send(group.send.mutex);
  std::lock_guard recv(group.recv.mutex);
  CqLock cqs(group);
  group.life.errors.switching = true;  // errors found now are neither reported nor shown
  kept_hold_back(group);
  collect(*group.send_cq);
  if (group.recv_cq != group.send_cq) collect(*group.recv_cq);
  group.life.errors.switching = false;

  // The group leaves its shared queue now if its QP takes no more receives; otherwise it leaves
  // when the device says so.
  const int consumes = group.srq_member;
  if (consumes != kNoMember &&
      (group.life.members[consumes].last_taken || group.context->members[consumes].dead)) {
    receives_leave(group);
  }

  // All that follows is a batch that a thread may be building.
  const uint64_t end = group.send.journal.head_seen();
  const RecvJournal& receives = group.recv.journal;
  uint64_t position = first_open(group, end);
  uint64_t receive = notifications_received(group);
  ibv_wc_status status = group.life.errors.original.status;
  uint32_t vendor_error = group.life.errors.original.vendor_err;
  if (status == IBV_WC_SUCCESS) {
    status = IBV_WC_RETRY_EXC_ERR;  // the fault was noticed before the transport gave up
    vendor_error = 0x81;
  }
  // After an error of its own, the application gets the completions that the NIC gives; only
  // requests that the NIC was never given are left to be flushed (C1).
  const int member = group.life.path.member;
  if (member != kNoMember && group.life.errors.members[member].accept == Accept::kPass) {
    position = group.send.is_closing ? UINT64_MAX : group.send.posted;
    receive = group.recv.posted;
    status = IBV_WC_WR_FLUSH_ERR;
    vendor_error = kVendorFlushed;
  } else {
    for (auto& one : group.life.errors.members) one.accept = Accept::kDrop;
  }
  group.life.errors.are_given = true;
  group.life.path.off_default = false;
  group.send.route = Route::kError;
  group.recv.route = Route::kError;

  Errors::Owed owed{position, status, vendor_error};
  fail_sends(group, owed, end);
  if (group.send.is_closing) group.life.errors.owed = owed;
  for (; receive < receives.head(); receive++) {
    put_side(*group.recv_cq,
             error_of(group, receives.wr_id(receive), IBV_WC_WR_FLUSH_ERR, kVendorFlushed));
  }
}

void fail_batch(Group& group) {
  auto& owed = group.life.errors.owed;
  if (!owed) return;
  CqLock cqs(group);
  const uint64_t end = group.send.journal.head();
  owed->position = std::max(owed->position, first_open(group, end));
  fail_sends(group, *owed, end);
  owed.reset();
}

void flush_send(Group& group, uint64_t position) {
  std::lock_guard lock(group.send_cq->mutex);
  put_side(*group.send_cq, error_of(group, group.send.journal.wr_id(position), IBV_WC_WR_FLUSH_ERR,
                                    kVendorFlushed));
}

void flush_recv(Group& group, uint64_t position) {
  std::lock_guard lock(group.recv_cq->mutex);
  put_side(*group.recv_cq, error_of(group, group.recv.journal.wr_id(position), IBV_WC_WR_FLUSH_ERR,
                                    kVendorFlushed));
}

}  // namespace shift::group
