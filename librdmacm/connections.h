// What the front of librdmacm knows of established connections.
#pragma once

#include <rdma/rdma_cma.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

namespace shift::cm {

class Connections {
 public:
  Connections() = default;
  Connections(const Connections&) = delete;
  Connections& operator=(const Connections&) = delete;

  using Ask = bool (*)(const rdma_cm_id& id);

  // The program is given an event of the stock library's, or the stock library itself is, for an
  // id that has no channel of the program's. An id that is made anew at an old one's address is
  // told of something else first.
  void told(const rdma_cm_event& event, bool by_stock, Ask has_left);
  // An event of a connection is kept from the program.
  void hidden(const rdma_cm_event& event);
  bool is_established(const rdma_cm_id* id) const;

  // About to be destroyed. As the stock library does it, this waits until the program has
  // acknowledged what of ours names the id.
  void forget(const rdma_cm_id* id);
  // It has another channel now. Waits likewise.
  void migrated(const rdma_cm_id* id, bool is_synchronous);

  // The peer has closed this QP; nobody can say so through the kernel. Any thread.
  void peer_gone(const ibv_qp* qp);
  // The program ends it itself, and need not wait for the kernel's word either.
  void gone(const rdma_cm_id* id);
  // The program was told that, and need not hear it again.
  bool is_told_gone(const rdma_cm_id* id) const;

  // What to know of a connection that the program is about to end.
  struct Ending {
    bool is_ours = false;         // a fault was masked: the kernel's word may not come, or late
    bool is_removed = false;      // the kernel has taken the connection away with its device
    bool is_synchronous = false;  // the stock library takes the next event of its channel
  };
  Ending ending(const rdma_cm_id* id, Ask has_left) const;

  // The kernel has taken the listener away with its device. True: a connection that came by it is
  // established and `is_masked`, and the end of the listener is not told before all that came by it
  // are destroyed, and a moment later still: a program that is done destroys the listener, too.
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kMoment{2};
  bool postpone_end(const rdma_cm_id* listener, Ask is_masked);
  // When to take() again; Clock::time_point::max(): nothing is due by itself.
  Clock::time_point next_due(const rdma_event_channel* channel) const;

  // An event of our own for the channel; nullptr: there is none.
  rdma_cm_event* take(const rdma_event_channel* channel);
  // False: the event is not ours.
  bool acknowledge(rdma_cm_event* event);

  // While it lives, its descriptor becomes readable when take() may find something.
  class Waiter {
   public:
    Waiter(Connections& connections, const rdma_event_channel* channel);
    ~Waiter();
    Waiter(const Waiter&) = delete;
    Waiter& operator=(const Waiter&) = delete;
    int fd() const { return fd_; }  // -1: none could be made
    void clear() const;

   private:
    Connections& connections_;
    std::unordered_multimap<const rdma_event_channel*, int>::iterator place_;
    int fd_;
  };

 private:
  struct Connection {
    const rdma_event_channel* channel;
    // Never looked into: its owner may have destroyed it. nullptr: librdmacm does not know it.
    const ibv_qp* qp;
    bool is_synchronous = false;
    bool hid = false;      // an event of it was kept from the program
    bool removed = false;  // DEVICE_REMOVAL was
    enum { kGood, kGone, kTold } state = kGood;
  };

  struct End {
    const rdma_event_channel* channel;
    Clock::time_point due = Clock::time_point::max();
  };
  rdma_cm_event* make(const rdma_cm_id* id, rdma_cm_event_type type);
  void wake(const rdma_event_channel* channel);
  void leave(Connection& connection);
  void await_acknowledged(const rdma_cm_id* id, std::unique_lock<std::mutex>& lock);

  mutable std::mutex mutex_;
  std::unordered_map<const rdma_cm_id*, Connection> known_;
  std::unordered_map<const rdma_cm_id*, const rdma_cm_id*>
      came_by_;                                      // which listener, until destroyed
  std::unordered_map<const rdma_cm_id*, End> ends_;  // of listeners, postponed
  std::unordered_multimap<const rdma_event_channel*, int> waiters_;
  std::unordered_set<rdma_cm_event*> own_;  // taken, and not acknowledged yet
  std::condition_variable acknowledged_;
  // Closed by a peer before the program was told that the connection stands. One may have been
  // destroyed, and another QP be at its address.
  std::unordered_set<const ibv_qp*> gone_early_;
};

}  // namespace shift::cm
