// Shared receive queues: one pool of receives over an SRQ on each member (decision 11).
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "group/device.h"

namespace shift::group {

struct Context;
struct Group;
struct ProtectionDomain;

// One receive that the application has posted, or what is left of one on a member's SRQ. Its place
// in the pool, counted from a number drawn at random, is the wr_id that the NIC sees.
struct ReceiveSlot {
  enum class State : uint8_t {
    kFree,
    kWaiting,  // in SharedQueue::waiting
    kPosted,   // on the member's SRQ
    kStale,    // on the member's SRQ, but it stands for nothing
  };
  State state = State::kFree;
  uint8_t member = 0;
  int32_t num_sge = 0;
  uint64_t wr_id = 0;
  uint64_t order = 0;  // of posting
};

struct Recall;

struct SharedQueue {
  // max_wr, max_sge: what the default's SRQ has. Throws std::bad_alloc.
  SharedQueue(Context& owner, uint32_t max_wr, uint32_t max_sge);
  ~SharedQueue();

  ibv_srq srq{};  // handed to the application
  Context& context;
  ProtectionDomain* pd = nullptr;
  const uint32_t max_wr, max_sge;
  std::atomic<int> users{0};  // groups. Goes up under mutex
  // The application waits for IBV_EVENT_SRQ_LIMIT_REACHED.
  std::atomic<bool> limit_armed{false};

  // ---- inside CompletionQueue::mutex, outside Context::mutex
  std::mutex mutex;
  struct Member {
    ibv_srq* real = nullptr;
    uint32_t posted = 0, stale = 0;  // slots
    int groups = 0;                  // that can consume here
  };
  PerMember<Member> members;
  std::unique_ptr<ReceiveSlot[]> slots;
  std::unique_ptr<ibv_sge[]> sges;  // max_sge for each slot
  uint32_t slot_count = 0;
  // The wr_id of the first slot. Sends of QPs on this queue have the application's numbers, and the
  // opcode of a failed completion is not valid: so no number that the application could know may be
  // a slot's.
  uint64_t first_wr_id = 0;
  std::vector<ReceiveSlot*> free;
  std::deque<ReceiveSlot*> waiting;  // the oldest first
  uint32_t live = 0;                 // waiting or posted: what the application has outstanding
  uint64_t next_order = 0;
  uint32_t limit = 0;
  int members_used = 0;  // with groups
  bool recall_asked = false;
  bool is_stock = false;  // serves QPs that are not protected, and none that are (C10)

  // Worker only.
  PerMember<std::unique_ptr<Recall>> recall;
  PerMember<std::chrono::steady_clock::time_point> cleanse_not_before{};
  PerMember<int> cleanse_failures{};

  static SharedQueue* from(ibv_srq* handle) { return reinterpret_cast<SharedQueue*>(handle); }

  // A QP is about to be made on it; a protected one counts among its users from here on. A queue
  // serves the one kind or the other: false if it is not this one.
  [[nodiscard]] bool claim(bool is_protected);

  // ibv_post_srq_recv: 0, or errno with `bad`.
  int post(ibv_recv_wr* wr, ibv_recv_wr** bad);

  // The slot whose completion this is; nullptr: it is no receive of this queue.
  ReceiveSlot* find(const ibv_wc& wc) const;
  // The application gets the completion; returns its wr_id.
  uint64_t consume(ReceiveSlot* slot);
  // It does not: the receive was taken by a path that broke, or recalled.
  void give_back(ReceiveSlot* slot);

  // A group can consume on the member from here on. kUnusable: there are stale receives, no SRQ, or
  // one that refuses; kKeyMissing: a receive's region is not registered there.
  enum class Join : uint8_t { kDone, kUnusable, kKeyMissing };
  [[nodiscard]] Join join(int member);
  // No more.
  void leave(int member);

  // Worker: posts those that waited for their regions, and brings receives back from members that
  // have many for those that have none.
  void recall_some();
  // Worker: takes all stale receives out of a member's SRQ. False: not done.
  [[nodiscard]] bool cleanse(int member);
  // Worker, at the end.
  void recall_destroy();

  // Asks for an event when fewer are left; errno.
  int limit_set(uint32_t value);

 private:
  bool is_usable(int member) const;
  int emptiest() const;
  int post_to(int member, ReceiveSlot* const* list, int count);
  // What keeps the oldest of the waiting from being posted: as post_to(), and where.
  struct Obstacle {
    int error = 0;
    int member = kNoMember;
  };
  Obstacle post_waiting();
  void tell(const Obstacle& in_the_way);
  // Both. False: something is in the way.
  bool bring_waiting();
  bool names_missing(const ibv_recv_wr& wr) const;
  void ask();
  void wait_again(ReceiveSlot* slot);
  void abandon_unused();
  void abandon(int member);
  void ask_if_dry();
};

// The group's part in its shared queue, if it has one. Before the application's or our connection
// of the member's QP is used:
[[nodiscard]] SharedQueue::Join receives_join(Group& group, int member);
// when nothing can be consumed any more by the QP that it is committed with:
void receives_leave(Group& group);
// before the group's QPs are destroyed or reset, and most NICs drop their completions: nobody would
// learn which receives they have taken. Those of members from `first` on take no more.
void receives_settle(Group& group, int first);
// The device says that a QP in the error state has taken its last receive.
void receives_last_taken(Group& group, int member);

// A completion of a QP that is not protected: the application's number, if it tells of a receive of
// a shared queue.
std::optional<uint64_t> consume_unprotected(Context& context, const ibv_wc& wc);

void twin_srqs_create(SharedQueue& queue);
void twin_srqs_destroy(SharedQueue& queue);

// Takes receives out of a member's SRQ by sending it empty messages. The worker's.
struct Recall {
  Recall(SharedQueue& owner, int member_number) : queue(owner), member(member_number) {}
  ~Recall();

  // kEmpty: there were fewer. kLate: not all could be taken in time. kBroken: this NIC does not
  // even carry messages to itself.
  enum class Taken : uint8_t { kAll, kEmpty, kLate, kBroken };
  // Takes `count` of them; each is given back to the queue.
  Taken take(uint32_t count);

 private:
  bool make();
  bool connect();
  bool poll();  // false: the connection is broken
  void shut();

  SharedQueue& queue;
  const int member;
  ibv_cq* cq_ = nullptr;
  ibv_qp* sender_ = nullptr;
  ibv_qp* receiver_ = nullptr;  // on the SRQ
  bool connected_ = false;
  bool found_empty_ = false, found_broken_ = false;
  uint32_t sent_ = 0, acknowledged_ = 0, taken_ = 0;
};
static_assert(offsetof(SharedQueue, srq) == 0);

}  // namespace shift::group
