// How a ConnectX lays out its work queue entries and completions in memory: the part of the device
// interface (public in <infiniband/mlx5dv.h>) that the emulated NIC has to use. All fields are big
// endian. The definitions are repeated here because the NIC model must not depend on a provider's
// headers.
#pragma once

#include <endian.h>

#include <cstddef>
#include <cstdint>

namespace cxemu {

inline constexpr uint32_t kSendBlockSize = 64;     // a send WQE takes whole blocks of this size
inline constexpr uint32_t kSegmentSize = 16;       // and is made of segments of this size
inline constexpr uint32_t kListEndKey = 0x100;     // lkey that ends a receive list
inline constexpr uint32_t kInlineFlag = 1u << 31;  // in a data segment's byte_count
inline constexpr uint32_t kCqeSize = 64;

enum WqeOpcode : uint8_t {
  kWqeNop = 0x00,
  kWqeSendInvalidate = 0x01,
  kWqeWrite = 0x08,
  kWqeWriteImm = 0x09,
  kWqeSend = 0x0a,
  kWqeSendImm = 0x0b,
  kWqeRead = 0x10,
  kWqeCompareSwap = 0x11,
  kWqeFetchAdd = 0x12,
  kWqeUmr = 0x25,  // changes a memory key
};

// fm_ce_se of the control segment.
inline constexpr uint8_t kCtrlSolicited = 1u << 1;
inline constexpr uint8_t kCtrlCompletionAlways = 2u << 2;  // lower values: on errors only
inline constexpr uint8_t kCtrlFenceShift = 5;              // three bits
inline constexpr uint8_t kFenceReads = 2;  // this mode and higher wait for READs and atomics

struct CtrlSegment {
  uint32_t opmod_idx_opcode;
  uint32_t qpn_ds;  // low 6 bits: length in segments
  uint8_t signature;
  uint8_t stream[2];
  uint8_t fm_ce_se;
  uint32_t imm;
};

// For UD; it follows the control segment.
struct AddressVector {
  uint32_t qkey;
  uint32_t reserved0;
  uint32_t dqp;  // with kAddressVectorExtended, the whole structure is present
  uint8_t stat_rate_sl;
  uint8_t fl_mlid;
  uint16_t rlid;
  uint8_t reserved1[4];
  uint8_t rmac[6];
  uint8_t tclass;
  uint8_t hop_limit;
  uint32_t grh_gid_fl;  // bits 20-27: index in the sender's GID table
  uint8_t rgid[16];
};
inline constexpr uint32_t kAddressVectorExtended = 1u << 31;
inline constexpr uint32_t kQkeyOfQp = 1u << 31;  // in a WQE's Q_Key: take the QP's instead

// For XRC; it follows the control segment.
struct XrcSegment {
  uint32_t srqn;
  uint32_t reserved[3];
};

struct RemoteSegment {
  uint64_t address;
  uint32_t rkey;
  uint32_t reserved;
};

struct AtomicSegment {
  uint64_t swap_or_add;
  uint64_t compare;
};

// How a WQE changes a memory key.
struct UmrControlSegment {
  uint8_t flags;
  uint8_t reserved0[3];
  uint16_t translation_octowords;
  uint16_t translation_offset;
  uint64_t mask;  // of the fields that change
  uint8_t reserved1[32];
};

inline constexpr uint8_t kUmrInline = 1u << 7;     // the translation is in the WQE
inline constexpr uint8_t kUmrCheckFree = 1u << 5;  // the key must be free
inline constexpr uint8_t kUmrCheckQpn = 1u << 3;   // the key must be this queue pair's

inline constexpr uint64_t kUmrMaskLength = 1u << 0;
inline constexpr uint64_t kUmrMaskStart = 1u << 6;
inline constexpr uint64_t kUmrMaskKey = 1u << 13;
inline constexpr uint64_t kUmrMaskQpn = 1u << 14;
inline constexpr uint64_t kUmrMaskLocalWrite = 1u << 18;
inline constexpr uint64_t kUmrMaskRemoteRead = 1u << 19;
inline constexpr uint64_t kUmrMaskRemoteWrite = 1u << 20;
inline constexpr uint64_t kUmrMaskAtomic = 1u << 21;
inline constexpr uint64_t kUmrMaskFree = 1u << 29;

struct KeySegment {
  uint8_t free;
  uint8_t reserved0;
  uint8_t access;
  uint8_t reserved1;
  uint32_t qpn_variant;
  uint32_t reserved2[2];
  uint64_t start;
  uint64_t length;
  uint32_t reserved3[8];
};

inline constexpr uint8_t kKeyFree = 1u << 6;
inline constexpr uint8_t kKeyAtomic = 1u << 6;
inline constexpr uint8_t kKeyRemoteWrite = 1u << 5;
inline constexpr uint8_t kKeyRemoteRead = 1u << 4;
inline constexpr uint8_t kKeyLocalWrite = 1u << 3;

static_assert(sizeof(UmrControlSegment) == 48 && sizeof(KeySegment) == 64);

struct DataSegment {
  uint32_t byte_count;  // 0 means 2 GiB
  uint32_t lkey;
  uint64_t address;
};

static_assert(sizeof(CtrlSegment) == kSegmentSize && sizeof(RemoteSegment) == kSegmentSize &&
              sizeof(AtomicSegment) == kSegmentSize && sizeof(DataSegment) == kSegmentSize &&
              sizeof(XrcSegment) == kSegmentSize);
static_assert(sizeof(CtrlSegment) + sizeof(AddressVector) == kSendBlockSize);

// The head of an entry of a shared receive queue; data segments follow.
struct SrqNextSegment {
  uint8_t reserved0[2];
  uint16_t next_wqe_index;
  uint8_t reserved1[12];
};
static_assert(sizeof(SrqNextSegment) == kSegmentSize);

enum CqeOpcode : uint8_t {
  kCqeRequester = 0,
  kCqeRecvWriteImm = 1,
  kCqeRecvSend = 2,
  kCqeRecvSendImm = 3,
  kCqeRecvSendInvalidate = 4,
  kCqeResize = 5,
  kCqeRequesterError = 13,
  kCqeResponderError = 14,
  kCqeInvalid = 15,
};

enum Syndrome : uint8_t {
  kSyndromeNone = 0,
  kSyndromeLocalLength = 0x01,
  kSyndromeLocalQpOperation = 0x02,
  kSyndromeLocalProtection = 0x04,
  kSyndromeFlush = 0x05,
  kSyndromeWindowBind = 0x06,
  kSyndromeBadResponse = 0x10,
  kSyndromeRemoteInvalidRequest = 0x12,
  kSyndromeRemoteAccess = 0x13,
  kSyndromeRemoteOperation = 0x14,
  kSyndromeRetryExceeded = 0x15,
  kSyndromeRnrRetryExceeded = 0x16,
};

// Vendor syndromes seen on ConnectX for the errors above; programs print them.
inline constexpr uint8_t vendor_syndrome(Syndrome syndrome) {
  switch (syndrome) {
    case kSyndromeFlush:
      return 0xf9;
    case kSyndromeRetryExceeded:
      return 0x81;
    case kSyndromeRnrRetryExceeded:
      return 0x87;
    case kSyndromeRemoteAccess:
      return 0x88;
    case kSyndromeRemoteInvalidRequest:
      return 0x89;
    case kSyndromeRemoteOperation:
      return 0x8a;
    case kSyndromeLocalProtection:
      return 0x51;
    case kSyndromeLocalQpOperation:
      return 0x68;
    case kSyndromeLocalLength:
      return 0xd6;
    default:
      return 0;
  }
}

// One 64-byte completion. In a CQ with 128-byte entries it is the second half.
struct CqeLayout {
  uint8_t reserved[24];
  uint32_t flags_rqpn;
  uint8_t l4_and_vlan[4];
  uint32_t srqn_uidx;
  uint32_t imm;
  uint8_t app[4];
  uint32_t byte_count;
  uint64_t timestamp;
  uint32_t wqe_opcode_qpn;
  uint16_t wqe_counter;
  uint8_t signature;
  uint8_t opcode_owner;
};
inline constexpr uint32_t kCqeGrh = 1u << 28;  // in flags_rqpn: a GRH precedes the data
// Also in flags_rqpn, where InfiniBand has the service level: the kind of header that the GRH is.
// UCX reads it, from the CQE or as ibv_wc::sl, before it looks for the address in the header.
inline constexpr int kCqePacketShift = 24;
enum CqePacket : uint8_t {
  kCqePacketRoceV1 = 0x0,
  kCqePacketRoceV2Ipv6 = 0x9,
  kCqePacketRoceV2Ipv4 = 0xa,
};
// An error completion has its syndromes in place of the timestamp's last two bytes.
inline constexpr size_t kCqeVendorSyndromeOffset = 54;
inline constexpr size_t kCqeSyndromeOffset = 55;

static_assert(sizeof(CqeLayout) == kCqeSize);
static_assert(offsetof(CqeLayout, srqn_uidx) == 32 && offsetof(CqeLayout, timestamp) == 48 &&
              offsetof(CqeLayout, wqe_counter) == 60);

// The application's threads write doorbell records without any lock.
inline uint32_t doorbell_load(const volatile uint32_t* record) {
  return be32toh(__atomic_load_n(record, __ATOMIC_ACQUIRE));
}

}  // namespace cxemu
