// Moves RoCE packets between the processes of a fabric. Carriers know processes and addresses, but
// not queue pairs, faults or the content of packets.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cxemu {

class FrameSink {
 public:
  // One packet that arrived for the NIC `dst_ipv4_be`; `packet` is valid during the call only.
  // `corrupt`: its ICRC is wrong, so its content cannot be trusted.
  virtual void frame_arrived(uint32_t src_ipv4_be, uint32_t dst_ipv4_be, const uint8_t* packet,
                             size_t size, bool corrupt) = 0;

 protected:
  ~FrameSink() = default;
};

// Keeps order between any two processes. A full way causes back-pressure, so nothing is lost while
// both processes live; but the UDP carrier may lose packets all the same, as any Ethernet may.
// Packets to a process that does not exist vanish.
class Carrier {
 public:
  virtual ~Carrier() = default;

  // The process begins, or ends, to use a NIC; calls nest. Packets leave from, and arrive for, NICs
  // in use only.
  virtual void address_open(uint32_t ipv4_be) = 0;
  virtual void address_close(uint32_t ipv4_be) = 0;

  // Room to write a packet of up to `size` bytes (kMaxPacket at most) for the process `slot`.
  // nullptr when that way is full: try again in a later pass. Valid until the next call of any
  // function except commit().
  virtual uint8_t* reserve(int slot, size_t size) = 0;
  // Sends what was written after the last reserve(); `size` may be less than was reserved. The
  // packet may be held back until flush(). `corrupt`: send it with a wrong ICRC.
  virtual void commit(uint32_t src_ipv4_be, uint32_t dst_ipv4_be, size_t size, bool corrupt) = 0;
  // Sends everything that was held back. Returns whether anything still waits for room.
  virtual bool flush() = 0;

  struct Received {
    bool any;      // something happened
    bool drained;  // nothing that arrived before the call is left
  };
  // Delivers packets that arrived, until none is left or about `max_bytes` were delivered.
  virtual Received receive(FrameSink& sink, size_t max_bytes) = 0;

  // Becomes readable when receive() has something to do; -1 if there is no such descriptor.
  virtual int wait_fd() const = 0;
  // In a forked child: gives up all descriptors, which are the parent's too, so that others still
  // notice when the parent ends.
  virtual void abandon() = 0;
};

}  // namespace cxemu
