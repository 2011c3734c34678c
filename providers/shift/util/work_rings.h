// What a provider's own work queues still hold of the requests that were posted. The layer reads
// them when a path has broken, so that it need not copy each request while all is well.
//
// The front of a provider's direct verbs implements the table; it knows the provider's format. The
// two fronts of a process may be of different builds, see virtual_objects.h.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

namespace shift {

// The work queues of one real QP, which stay where they are as long as the QP lives.
struct WorkRings {
  uint8_t* sends;
  uint32_t send_blocks;  // of kBlock bytes; a power of two
  uint32_t qpn;
  const uint8_t* receives;
  uint32_t receive_slots, receive_stride;  // slots: a power of two
  const uint32_t* counts;                  // how far the provider has filled the queues

  static constexpr uint32_t kBlock = 64;
};

// What the layer has kept of a request, by which it is recognised.
struct SentHint {
  uint32_t opcode;  // an ibv_wr_opcode
  bool is_signaled;
};

// Where a request that is read comes to.
struct SentRequest {
  ibv_send_wr* wr;  // without wr_id, flags other than IBV_SEND_INLINE, and next
  ibv_sge* sges;    // room for max_sge; wr->sg_list
  uint32_t max_sge;
  uint8_t* inline_data;  // room for max_inline bytes; then the one SGE points to it
  uint32_t max_inline;
};

// No function waits, allocates or calls the provider's code, except `knows` and `open`. None of
// them may be called while another thread posts to that queue.
struct WorkRingTable {
  size_t size;  // bytes of the table, as its maker knows it

  // Whether the device is of this provider.
  bool (*knows)(ibv_device* real);
  // False: the QP is not of this provider, or its queues are not as this code knows them.
  bool (*open)(ibv_qp* real, WorkRings* rings);
  // The block after the newest request.
  uint32_t (*sends_end)(const WorkRings* rings);
  // Reads the request that ends before the block `end`, and returns how many blocks it fills.
  // Returns 0 if there is no such request, or if more than one could end there: data that a program
  // sends inline may look like a request.
  uint32_t (*send_before)(const WorkRings* rings, uint32_t end, const SentHint* hint,
                          const SentRequest* to);
  // Reads the receive that is `age` receives older than the newest. False: its slot does not hold a
  // receive with at most `max_sge` SGEs.
  bool (*receive)(const WorkRings* rings, uint32_t age, ibv_recv_wr* wr, ibv_sge* sges,
                  uint32_t max_sge);
  // The QP has just been reset, so the blocks get their numbers again. No request of the life
  // before is read from here on.
  void (*forget)(const WorkRings* rings);
};

}  // namespace shift

// The front of libmlx5 exports this function.
extern "C" const shift::WorkRingTable* shift_work_rings();
