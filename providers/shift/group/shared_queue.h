// Shared receive queues: one pool of receives, and an SRQ on each member (decision 11).
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "group/context.h"
#include "group/device.h"
#include "group/domain.h"
#include "group/held.h"

namespace shift::group {

struct Group;

// One receive that the application has posted, or what is left of it on a member's SRQ. The slot's
// place in the pool, counted from a number drawn at random, is the wr_id that the NIC sees.
struct ReceiveSlot {
  enum class State : uint8_t {
    kFree,
    kWaiting,  // in SharedQueue::waiting
    kPosted,   // on the member's SRQ
    kStale,    // on the member's SRQ, but it stands for no receive
  };
  State state = State::kFree;
  uint8_t member = 0;
  int32_t num_sge = 0;
  uint64_t wr_id = 0;
  uint64_t order = 0;  // its place in the order of posting
};

struct Recall;

struct SharedQueue {
  // max_wr and max_sge are those of the default's SRQ. Throws std::bad_alloc.
  SharedQueue(Context& owner, uint32_t max_wr, uint32_t max_sge);
  ~SharedQueue();

  ibv_srq srq{};  // what the application holds
  Context& context;
  ProtectionDomain* pd = nullptr;
  const uint32_t max_wr, max_sge;
  std::atomic<int> users{0};  // how many groups use it; increased under mutex
  // The application waits for IBV_EVENT_SRQ_LIMIT_REACHED.
  std::atomic<bool> limit_armed{false};

  // ---- under `mutex`, which is locked after CompletionQueue::mutex and before Context::mutex
  std::mutex mutex;
  struct Member {
    ibv_srq* real = nullptr;
    uint32_t posted = 0, stale = 0;  // how many slots
    int groups = 0;                  // how many groups can consume here
    int leaving = 0;                 // how many of these are about to leave
    // A recall from here is asked for or under way, and another one was wanted meanwhile.
    bool gives = false, gives_again = false;
    // Where a receive is to go of members that have equally few: the last one that used one up has
    // the highest number, and the last one that gave its only one away has the lowest.
    int64_t claim = 0;
  };
  PerMember<Member> members;
  std::unique_ptr<ReceiveSlot[]> slots;
  std::unique_ptr<ibv_sge[]> sges;  // max_sge for each slot
  uint32_t slot_count = 0;
  // The wr_id of the first slot. Requests of QPs on this queue have the application's numbers, and
  // the opcode of a failed completion is not valid. So no number that the application could know
  // may be that of a slot.
  uint64_t first_wr_id = 0;
  std::vector<ReceiveSlot*> free;
  std::deque<ReceiveSlot*> waiting;  // the oldest comes first
  uint32_t live = 0;  // waiting or posted: the receives that the application has outstanding
  uint64_t next_order = 0;
  uint32_t limit = 0;
  int members_used = 0;       // how many members have groups
  uint32_t recall_asked = 0;  // for these members, one bit each, recall_some() will be called
  bool takes_turns = false;   // take_turn() will be called
  int64_t last_claim = 0;
  bool is_stock = false;  // serves QPs that are not protected, and no others (C10)

  // Held while the limit of the default's SRQ is changed, before `mutex`: the program and that
  // NIC's command thread change it. A further member's is changed by its command thread alone.
  std::mutex limit_mutex;

  Holders holders;
  Held<ProtectionDomain> pd_held;

  // Each is used on the command thread of the member's NIC only.
  PerMember<std::unique_ptr<Recall>> recall;
  PerMember<std::chrono::steady_clock::time_point> cleanse_not_before{};
  PerMember<int> cleanse_failures{};

  static SharedQueue* from(ibv_srq* handle) { return reinterpret_cast<SharedQueue*>(handle); }

  // Called when a QP is about to be made on this queue; a protected QP counts among its users from
  // here on. A queue serves only protected QPs or only others; false: the QP is of the wrong kind.
  [[nodiscard]] bool claim(bool is_protected);

  // Does the work of ibv_post_srq_recv: returns 0, or an errno with `bad`.
  int post(ibv_recv_wr* wr, ibv_recv_wr** bad);

  // The slot that the completion is for; nullptr: the completion is for no receive of this queue.
  ReceiveSlot* find(const ibv_wc& wc) const;
  // The application gets the completion. Returns the application's wr_id.
  uint64_t consume(ReceiveSlot* slot);
  // The application does not get the completion: the receive was taken by a path that broke, or was
  // recalled.
  void give_back(ReceiveSlot* slot);

  // From here on a group can consume on the member. kUnusable: the member's SRQ has stale receives,
  // refuses a receive, or does not exist; kKeyMissing: a receive's region is not registered there.
  enum class Join : uint8_t { kDone, kUnusable, kKeyMissing };
  [[nodiscard]] Join join(int member);
  // The group is about to leave its member, or stays after all. Receives are not recalled from
  // groups that leave: they become free, and a NIC that is being left may carry no recall.
  void leave_begin(Group& group);
  void leave_cancel(Group& group);
  // From here on the group cannot consume on its member any more. An application's thread that
  // destroys the QP may call this while the control thread shuts the path.
  void leave(Group& group);

  // For the member `dry`, on its NIC's command thread: posts the receives that waited for their
  // regions, and has the member that has most give some of its receives to one that has too few.
  void recall_some(int dry);
  // While there are fewer receives than members in use: has a member give its only one to one that
  // has none, since no verb tells which of them has a message waiting. Returns how many receives
  // the application has got so far; none: each member has one, so that nothing need take turns.
  std::optional<uint64_t> take_turn();
  // On the NIC's command thread: takes all stale receives out of a member's SRQ. False: some are
  // left.
  [[nodiscard]] bool cleanse(int member);

  // Asks for an event when fewer receives than this are left. Returns 0 or an errno.
  int limit_set(uint32_t value);
  // On the NIC's command thread, when a group can consume on the member: sets its SRQ's limit.
  void limit_renew(int member);

 private:
  bool is_usable(int member) const;
  int emptiest() const;
  int post_to(int member, ReceiveSlot* const* list, int count);
  // What keeps the oldest waiting receive from being posted: the error of post_to(), and the
  // member.
  struct Obstacle {
    int error = 0;
    int member = kNoMember;
  };
  Obstacle post_waiting();
  void tell(const Obstacle& in_the_way);
  // Calls post_waiting() and tell(). False: an obstacle is left.
  bool bring_waiting();
  bool names_missing(const ibv_recv_wr& wr) const;
  bool is_being_left(int member) const;
  void recall_from(int member, uint32_t count);
  void ask(int member);
  void wait_again(ReceiveSlot* slot);
  void abandon_unused();
  void abandon(int member);
  void ask_if_dry();
};

// The group's part in its shared queue, if it has one. Called before the connection of the member's
// QP is used:
[[nodiscard]] SharedQueue::Join receives_join(Group& group, int member);
// Called when the QP that the group is committed with is about to be shut, and if it was not:
void receives_leave_begin(Group& group);
void receives_leave_cancel(Group& group);
// Called when the QP that the group is committed with can consume nothing any more:
void receives_leave(Group& group);
// Called before the group's QPs are destroyed or reset. Most NICs then drop the completions, and
// nothing would say which receives the QPs have taken. The QPs on members from `first` on, before
// `end`, take no more receives.
void receives_settle(Group& group, int first, int end);
// The device says that a QP in the error state has taken its last receive.
void receives_last_taken(Group& group, int member);

// For a completion of a QP that is not protected: the application's wr_id if the completion is for
// a receive of a shared queue.
std::optional<uint64_t> consume_unprotected(Context& context, const ibv_wc& wc);

// These ask the command threads, and do not wait for them.
void twin_srqs_create(SharedQueue& queue);
// The twins are destroyed, and the layer's own QPs on them, those of the default's SRQ included.
void twin_srqs_destroy(SharedQueue& queue);

// Takes receives out of a member's SRQ by sending it empty messages. Used on the command thread of
// the member's NIC.
struct Recall {
  Recall(SharedQueue& owner, int member_number) : queue(owner), member(member_number) {}
  ~Recall();

  // kEmpty: there were fewer receives. kLate: not all could be taken in time. kBroken: this NIC
  // does not even carry messages to itself.
  enum class Taken : uint8_t { kAll, kEmpty, kLate, kBroken };
  // Takes `count` receives and gives each back to the queue. `is_vain`: asked again and again; true
  // ends the attempt (kLate).
  Taken take(uint32_t count, const std::function<bool()>& is_vain);

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
