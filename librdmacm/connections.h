// What the front of librdmacm knows about established connections.
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

  // An event of the stock library's reaches the program, or (for an id that has no channel of the
  // program's) the stock library itself. An id that is made anew at an old id's address gets some
  // other event first.
  void told(const rdma_cm_event& event, bool by_stock, Ask has_left);
  // An event of a connection is kept from the program.
  void hidden(const rdma_cm_event& event);
  bool is_established(const rdma_cm_id* id) const;

  // The id is about to be destroyed. As in the stock library, the call waits until the program has
  // acknowledged all our events that name the id.
  void forget(const rdma_cm_id* id);
  // The id now has another channel. The call waits as forget() does.
  void migrated(const rdma_cm_id* id, bool is_synchronous);

  // The peer has closed this QP, and the kernel cannot report it. Callable on any thread.
  void peer_gone(const ibv_qp* qp);
  // The program itself ends the connection; it need not wait for the kernel's event, either.
  void gone(const rdma_cm_id* id);
  // Whether the program was already told that the connection has ended.
  bool is_told_gone(const rdma_cm_id* id) const;

  // What the front knows about a connection that the program is about to end.
  struct Ending {
    bool is_ours = false;         // a fault was masked: the kernel's event may come late or never
    bool is_removed = false;      // the kernel has removed the connection with its device
    bool is_synchronous = false;  // the stock library takes the next event of its channel
  };
  Ending ending(const rdma_cm_id* id, Ask has_left) const;

  // The kernel has removed the listener with its device. Returns true if a connection that came by
  // the listener is established and `is_masked`. The program is then told about the listener's end
  // only after all connections that came by it are destroyed, and a moment later: a program that
  // has finished destroys the listener, too.
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kMoment{2};
  bool postpone_end(const rdma_cm_id* listener, Ask is_masked);
  // When to call take() again; Clock::time_point::max() if no time is set.
  Clock::time_point next_due(const rdma_event_channel* channel) const;

  // Our own event for the channel; nullptr if there is none.
  rdma_cm_event* take(const rdma_event_channel* channel);
  // Returns false if the event is not ours.
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
    // Never dereferenced: its owner may have destroyed it. nullptr: librdmacm does not know the QP.
    const ibv_qp* qp;
    bool is_synchronous = false;
    bool hid = false;      // an event of the connection was kept from the program
    bool removed = false;  // DEVICE_REMOVAL was kept from it
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
  std::unordered_map<const rdma_cm_id*, const rdma_cm_id*> came_by_;  // id to its listener
  std::unordered_map<const rdma_cm_id*, End> ends_;                   // of listeners, postponed
  std::unordered_multimap<const rdma_event_channel*, int> waiters_;
  std::unordered_set<rdma_cm_event*> own_;  // taken, and not acknowledged yet
  std::condition_variable acknowledged_;
  // QPs that a peer closed before the program was told that their connection is established. Such a
  // QP may have been destroyed since, and another QP may be at its address.
  std::unordered_set<const ibv_qp*> gone_early_;
};

}  // namespace shift::cm
