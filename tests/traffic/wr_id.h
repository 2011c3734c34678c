// How the judges number WRs: the top byte says send or receive, the next two bytes name the QP.
#pragma once

#include <cstdint>

namespace traffic {

inline constexpr uint64_t kSendTag = 0x5e;
inline constexpr uint64_t kReceiveTag = 0xec;

inline uint64_t wr_id_make(uint64_t tag, uint32_t qp, uint64_t serial) {
  return tag << 56 | uint64_t{qp} << 40 | serial;
}
inline bool is_receive_wr_id(uint64_t wr_id) {
  return wr_id >> 56 == kReceiveTag;
}

}  // namespace traffic
