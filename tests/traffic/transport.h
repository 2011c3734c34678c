// The two things that an end works on: verbs, or their imitation in the self-test, and the side
// channel.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace traffic {

// A registered memory region.
struct Region {
  std::byte* base = nullptr;
  size_t size = 0;
  uint32_t lkey = 0;
  uint32_t rkey = 0;

  std::span<std::byte> slot(uint64_t index, size_t slot_size) const {
    return {base + index * slot_size, slot_size};
  }
};

struct RemoteRegion {
  uint64_t base = 0;
  uint32_t rkey = 0;
};

struct SendRequest {
  uint64_t wr_id;
  ibv_wr_opcode opcode;
  bool is_signaled;
  bool is_inline;
  uint32_t imm;  // in host order
  std::byte* local;
  uint32_t length;
  uint32_t lkey;
  uint64_t remote;
  uint32_t rkey;
  uint64_t add;   // what FETCH_ADD adds, and what CMP_SWAP compares with
  uint64_t swap;  // what CMP_SWAP writes
};

struct ReceiveRequest {
  uint64_t wr_id;
  std::byte* local;
  uint32_t length;
  uint32_t lkey;
};

class Transport {
 public:
  virtual ~Transport() = default;
  // Registers new memory for all kinds of access. It is zeroed and page-aligned, and lives as long
  // as the transport.
  virtual Region region_add(size_t size) = 0;
  // Returns 0 or errno; `posted` says how many requests were taken.
  virtual int post_send(uint32_t qp, std::span<const SendRequest> requests, size_t* posted) = 0;
  virtual int post_receive(uint32_t qp, std::span<const ReceiveRequest> requests) = 0;
  // Returns the number of completions, or a negative number on failure.
  virtual int poll(std::span<ibv_wc> out) = 0;
  virtual uint32_t qp_number(uint32_t qp) const = 0;
};

// Ordered, reliable lines to the other process; they go over no NIC under test.
class SideChannel {
 public:
  virtual ~SideChannel() = default;
  virtual void send_line(std::string_view line) = 0;
  virtual std::optional<std::string> receive_line() = 0;
  virtual bool is_closed() const = 0;
};

}  // namespace traffic
