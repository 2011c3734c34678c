// Decoder of work queue entries.
#include "nic/wqe.h"

#include <infiniband/verbs.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "nic/mlx5_layout.h"
#include "nic/planted.h"

namespace cxemu {

namespace {

// A segment of the WQE. The ring is a multiple of the segment size, so a segment never wraps. The
// address vector takes three segments and fills the first block.
template <typename Segment>
Segment segment_at(const SendRing& ring, uint64_t offset) {
  Segment segment;
  memcpy(&segment, ring.buffer + (offset & (ring.bytes() - 1)), sizeof segment);
  return segment;
}

bool opcode_supported(uint8_t opcode, Service service) {
  switch (opcode) {
    case kWqeNop:
    case kWqeSend:
    case kWqeSendImm:
      return true;
    case kWqeWrite:
    case kWqeWriteImm:
      return service != Service::kUd;
    case kWqeRead:
    case kWqeCompareSwap:
    case kWqeFetchAdd:
    case kWqeSendInvalidate:
      return service == Service::kRc || service == Service::kXrc;
    case kWqeUmr:
      return service != Service::kUd;
    default:
      return false;
  }
}

// The segment in which the service says where the message goes, between the control segment and the
// operation. A RoCE address vector is always an extended one.
bool service_decode(const SendRing& ring, uint64_t* at, uint64_t end, SendWqe* wqe) {
  if (ring.service == Service::kUd) {
    if (end - *at < sizeof(AddressVector)) return false;
    const auto vector = segment_at<AddressVector>(ring, *at);
    const uint32_t qpn = be32toh(vector.dqp);
    if ((qpn & kAddressVectorExtended) == 0) return false;
    wqe->datagram.qkey = be32toh(vector.qkey);
    wqe->datagram.qpn = qpn & 0xffffff;
    wqe->datagram.sgid_index = static_cast<uint8_t>(be32toh(vector.grh_gid_fl) >> 20);
    wqe->datagram.service_level = vector.stat_rate_sl & 0xf;
    memcpy(wqe->datagram.gid, vector.rgid, sizeof vector.rgid);
    *at += sizeof(AddressVector);
  } else if (ring.service == Service::kXrc) {
    if (*at >= end) return false;
    wqe->srqn = be32toh(segment_at<XrcSegment>(ring, *at).srqn) & 0xffffff;
    *at += sizeof(XrcSegment);
  }
  return true;
}

bool opcode_has_remote(uint8_t opcode) {
  return opcode != kWqeNop && opcode != kWqeUmr && opcode != kWqeSend && opcode != kWqeSendImm &&
         opcode != kWqeSendInvalidate;
}

// Decodes data segments and inline data from `at` to `end`, both offsets in the ring that do not
// wrap.
bool parts_decode(const SendRing& ring, uint64_t at, uint64_t end, SendWqe* wqe) {
  while (at < end) {
    if (wqe->part_count == kMaxParts) return false;
    DataPart& part = wqe->part[wqe->part_count++];
    const auto segment = segment_at<DataSegment>(ring, at);
    const uint32_t byte_count = be32toh(segment.byte_count);
    if ((byte_count & kInlineFlag) != 0) {
      const uint32_t length = byte_count & ~kInlineFlag;
      const uint64_t step = (uint64_t{length} + 4 + kSegmentSize - 1) & ~uint64_t{kSegmentSize - 1};
      if (step > end - at) return false;
      part = {.address = at + 4, .length = length, .lkey = 0, .is_inline = true};
      at += step;
    } else {
      const uint32_t zero_means = CXEMU_PLANT(zero_count_is_nothing) ? 0 : 1u << 31;
      part = {.address = be64toh(segment.address),
              .length = byte_count != 0 ? byte_count : zero_means,
              .lkey = be32toh(segment.lkey),
              .is_inline = false};
      at += kSegmentSize;
    }
    wqe->length += part.length;
  }
  return wqe->length <= kMaxMessage || CXEMU_PLANT(long_wqe_accepted);
}

uint32_t window_access(uint8_t flags) {
  constexpr struct {
    uint8_t flag;
    uint32_t access;
  } kRights[] = {{kKeyLocalWrite, IBV_ACCESS_LOCAL_WRITE},
                 {kKeyRemoteWrite, IBV_ACCESS_REMOTE_WRITE},
                 {kKeyRemoteRead, IBV_ACCESS_REMOTE_READ},
                 {kKeyAtomic, IBV_ACCESS_REMOTE_ATOMIC}};
  uint32_t access = 0;
  for (const auto& right : kRights) {
    if ((flags & right.flag) != 0) access |= right.access;
  }
  return access;
}

// Work requests can change only windows here: all but binds and invalidations in the form that the
// library writes is refused. The WQE begins with the block at `start`.
bool window_decode(const SendRing& ring, uint64_t start, uint32_t segments, WindowUpdate* window) {
  constexpr uint64_t kMaskBoth = kUmrMaskFree | kUmrMaskKey;
  constexpr uint64_t kMaskBind = kMaskBoth | kUmrMaskLength | kUmrMaskStart | kUmrMaskLocalWrite |
                                 kUmrMaskRemoteRead | kUmrMaskRemoteWrite | kUmrMaskAtomic;
  constexpr size_t kKeyAt = kSegmentSize + sizeof(UmrControlSegment);
  constexpr size_t kTranslationAt = kKeyAt + sizeof(KeySegment);
  if (segments * kSegmentSize < kTranslationAt) return false;
  const auto control = segment_at<UmrControlSegment>(ring, start + kSegmentSize);
  const auto key = segment_at<KeySegment>(ring, start + kKeyAt);
  const uint64_t mask = be64toh(control.mask) & ~kUmrMaskQpn;
  *window = {};
  window->type2 = (be64toh(control.mask) & kUmrMaskQpn) != 0;
  window->variant = static_cast<uint8_t>(be32toh(key.qpn_variant));
  if ((key.free & kKeyFree) != 0) return mask == kMaskBoth;

  window->bind = true;
  if (mask != kMaskBind || (control.flags & kUmrInline) == 0) return false;
  if (segments * kSegmentSize < kTranslationAt + sizeof(DataSegment)) return false;
  const auto translation = segment_at<DataSegment>(ring, start + kTranslationAt);
  window->region_key = be32toh(translation.lkey);
  window->address = be64toh(translation.address);
  window->length = be64toh(key.length);
  window->iova = be64toh(key.start);
  window->access = window_access(key.access);
  return window->length != 0 && be32toh(translation.byte_count) == window->length;
}

}  // namespace

bool SendWqe::is_atomic() const {
  return opcode == kWqeCompareSwap || opcode == kWqeFetchAdd;
}

bool SendWqe::is_local() const {
  return opcode == kWqeNop || opcode == kWqeUmr;
}

bool SendWqe::is_read_or_atomic() const {
  return opcode == kWqeRead || is_atomic();
}

WqeError send_wqe_decode(const SendRing& ring, uint16_t index, uint32_t posted, SendWqe* wqe) {
  const uint64_t start = uint64_t{index & (ring.block_count - 1)} * kSendBlockSize;
  const auto ctrl = segment_at<CtrlSegment>(ring, start);
  const uint32_t head = be32toh(ctrl.opmod_idx_opcode);
  const uint32_t segments = be32toh(ctrl.qpn_ds) & 0x3f;

  wqe->opcode = static_cast<uint8_t>(head);
  wqe->index = index;
  wqe->blocks = 0;
  wqe->signaled = (ctrl.fm_ce_se & 0xc) >= kCtrlCompletionAlways;
  wqe->solicited = (ctrl.fm_ce_se & kCtrlSolicited) != 0;
  wqe->fence_reads = (ctrl.fm_ce_se >> kCtrlFenceShift) >= kFenceReads;
  wqe->imm_be = ctrl.imm;
  wqe->part_count = 0;
  wqe->length = 0;

  const uint32_t blocks = (segments * kSegmentSize + kSendBlockSize - 1) / kSendBlockSize;
  if (blocks == 0 || blocks > posted) return WqeError::kBadLength;
  if (static_cast<uint16_t>(head >> 8) != index && !CXEMU_PLANT(wqe_index_unchecked)) {
    return WqeError::kBadIndex;
  }
  wqe->blocks = static_cast<uint16_t>(blocks);
  if (!opcode_supported(wqe->opcode, ring.service)) return WqeError::kBadOpcode;
  if (wqe->opcode == kWqeNop) return WqeError::kNone;
  if (wqe->opcode == kWqeUmr) {
    return window_decode(ring, start, segments, &wqe->window) ? WqeError::kNone
                                                              : WqeError::kBadSegments;
  }

  uint64_t at = start + kSegmentSize;
  const uint64_t end = start + segments * kSegmentSize;
  if (!service_decode(ring, &at, end, wqe)) return WqeError::kBadSegments;
  if (opcode_has_remote(wqe->opcode)) {
    if (at >= end) return WqeError::kBadSegments;
    const auto remote = segment_at<RemoteSegment>(ring, at);
    wqe->remote_address = be64toh(remote.address);
    wqe->rkey = be32toh(remote.rkey);
    at += kSegmentSize;
  }
  if (wqe->is_atomic()) {
    if (at >= end) return WqeError::kBadSegments;
    const auto atomic = segment_at<AtomicSegment>(ring, at);
    wqe->swap_or_add = be64toh(atomic.swap_or_add);
    wqe->compare = be64toh(atomic.compare);
    at += kSegmentSize;
  }
  if (!parts_decode(ring, at, end, wqe)) return WqeError::kBadSegments;
  if (wqe->is_atomic() && wqe->length != sizeof(uint64_t)) return WqeError::kBadSegments;
  const std::span parts(wqe->part, wqe->part_count);
  const auto is_inline = [](const DataPart& part) { return part.is_inline; };
  if (wqe->is_read_or_atomic() && std::any_of(parts.begin(), parts.end(), is_inline)) {
    return WqeError::kBadSegments;
  }
  return WqeError::kNone;
}

void ring_copy(const SendRing& ring, uint64_t offset, void* to, uint32_t size) {
  const uint32_t begin = static_cast<uint32_t>(offset & (ring.bytes() - 1));
  const uint32_t first = std::min(size, ring.bytes() - begin);
  memcpy(to, ring.buffer + begin, first);
  memcpy(static_cast<uint8_t*>(to) + first, ring.buffer, size - first);
}

void recv_parts_decode(const uint8_t* at, uint32_t room, RecvWqe* wqe) {
  room = std::min(room, kMaxParts);
  wqe->part_count = 0;
  wqe->length = 0;
  for (uint32_t i = 0; i < room; i++) {
    DataSegment segment;
    memcpy(&segment, at + i * kSegmentSize, sizeof segment);
    if (be32toh(segment.lkey) == kListEndKey) break;
    const uint32_t byte_count = be32toh(segment.byte_count);
    DataPart& part = wqe->part[wqe->part_count++];
    part = {.address = be64toh(segment.address),
            .length = byte_count != 0 ? byte_count : 1u << 31,
            .lkey = be32toh(segment.lkey),
            .is_inline = false};
    wqe->length += part.length;
  }
}

void recv_wqe_decode(const RecvRing& ring, uint16_t index, RecvWqe* wqe) {
  const uint8_t* at = ring.buffer + (size_t{index & (ring.wqe_count - 1)} << ring.wqe_shift);
  wqe->index = index;
  recv_parts_decode(at, (1u << ring.wqe_shift) / kSegmentSize, wqe);
}

}  // namespace cxemu
