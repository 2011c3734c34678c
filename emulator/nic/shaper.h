// One process's part in the rates of NICs: it books capacity, tells its queue pairs
// whose turn it is, and keeps arrived packets until they may be handed over. It is only used where
// some NIC of the fabric has a rate.
//
// Within a class the queue pairs take turns of about a millisecond, first come, first served.
// Bookings are served in their order, and each process has one at a time, with a turn for each of
// its queue pairs that waits: so all queue pairs of a host get the same, whatever their processes.
// A higher class goes first, except that a booking that was made before it came is served.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "fabric/fabric.h"
#include "nic/held_packet.h"

namespace cxemu {

// What a process has booked of a bucket for one class.
class Booking {
 public:
  // Whether `size` bytes may be moved now. If not, and nothing is booked yet, books them, or up to
  // `useful` bytes when that is more.
  bool ready(ShapeBucket& bucket, int service_class, uint64_t size, uint64_t useful,
             uint64_t now_ns);
  void spend(uint64_t size) { bytes_ -= size < bytes_ ? size : bytes_; }
  uint64_t left() const { return bytes_; }
  // Nothing waits any more.
  void release(ShapeBucket& bucket, int service_class);
  // When to ask again after ready() returned false.
  uint64_t due_ns() const { return due_ns_; }

 private:
  void want(ShapeBucket& bucket, int service_class, uint64_t until_ns, uint64_t now_ns);

  uint64_t rate_ = 0, start_ns_ = 0, bytes_ = 0;
  uint64_t due_ns_ = 0;
  uint64_t wanted_ns_ = 0;  // as this process last stored it in the bucket
};

// The queue pairs of one process that want to pass one bucket.
class Gate {
 public:
  explicit Gate(ShapeBucket& bucket) : bucket_(bucket) {}

  const ShapeBucket& bucket() const { return bucket_; }
  bool ready(uint32_t qpn, int service_class, size_t size, uint64_t now_ns, uint64_t pass);
  void spend(uint32_t qpn, int service_class, size_t size);
  // Whether the booking is used up when one more packet of this size has passed.
  bool closes(int service_class, size_t size) const;
  // Forgets queue pairs that did not ask in this pass.
  void pass_end(uint64_t pass);
  // When to ask again: when a booking begins, or at once when another queue pair has come first.
  // What may go already waits for something else.
  uint64_t due_ns(uint64_t now_ns) const;

 private:
  struct Waiter {
    uint32_t qpn;
    uint64_t pass;  // in which it last asked
  };
  struct Lane {
    Booking booking;
    std::deque<Waiter> waiting;
    uint32_t served = 0;      // the queue pair whose turn it is, when it has begun
    uint64_t turn_spent = 0;  // bytes of this turn
    uint64_t moved_up = 0;    // the pass in which another queue pair last came first
    uint64_t ended = 0;       // the last pass

    bool turn_over(size_t size, uint64_t most) const {
      return booking.left() < size || (waiting.size() > 1 && turn_spent + size > most);
    }
  };

  // How many bytes a queue pair may send in its turn, of which the next packet has `size`.
  uint64_t turn(size_t size) const;

  ShapeBucket& bucket_;
  std::array<Lane, kShapeClasses> lanes_;
};

class Shaper {
 public:
  void pass_begin(uint64_t now_ns) {
    now_ns_ = now_ns;
    pass_++;
  }
  void pass_end();

  // Whether the queue pair may send a packet of this size now; spend() follows when it does. `to`:
  // the NIC that it goes to, or nullptr.
  bool ready(FabricNic& from, FabricNic* to, uint32_t qpn, int service_class, size_t size);
  void spend(FabricNic& from, FabricNic* to, uint32_t qpn, int service_class, size_t size);
  // Whether the queue pair has to wait before it sends one more packet of this size.
  bool closes(FabricNic& from, FabricNic* to, int service_class, size_t size);
  // A packet that waits for nobody; it takes its part of the capacity all the same.
  void charge(FabricNic& from, FabricNic* to, size_t size);

  // Whether packets that arrive for this NIC have to be given to arrived().
  bool paces(const FabricNic& nic);
  void arrived(FabricNic& nic, HeldPacket packet);
  // Appends the packets that may be handed over now, in their order.
  void hand_over(std::vector<HeldPacket>* due);
  size_t waiting_arrivals() const;

  // When the next packet may go, in or out; UINT64_MAX: none waits.
  uint64_t due_ns() const;

 private:
  struct ArrivalLane {
    Booking booking;
    std::deque<HeldPacket> packets;
    uint64_t bytes = 0;
  };
  struct Arrivals {
    FabricNic* nic;
    std::array<ArrivalLane, kShapeClasses> lanes;
  };

  // The gate of a bucket that has a rate, or nullptr.
  Gate* gate(ShapeBucket& bucket);
  Arrivals* arrivals_of(const FabricNic& nic);

  std::vector<std::unique_ptr<Gate>> gates_;
  std::vector<std::unique_ptr<Arrivals>> arrivals_;
  uint64_t now_ns_ = 0;
  uint64_t pass_ = 0;
};

}  // namespace cxemu
