// What the emulated device can hold. query_device reports these, and the commands enforce them.
#pragma once

#include <cstdint>

namespace cxemu {

inline constexpr uint32_t kPciDeviceId = 0x101d;  // ConnectX-6 Dx
inline constexpr uint32_t kCompVectors = 4;
inline constexpr uint32_t kObjectsMax = 65000;  // of each kind; the index in a QPN has 16 bits
inline constexpr uint32_t kQueueEntriesMax = 32768;
inline constexpr uint32_t kSrqEntriesMax = kQueueEntriesMax;  // one entry links and is not usable
inline constexpr uint32_t kSrqSgeMax = 31;                    // and a link, in 512 bytes
inline constexpr uint32_t kCqeMax = 4194303;
inline constexpr uint32_t kSgeMax = 30;
inline constexpr uint32_t kReadAtomicMax = 16;
inline constexpr uint32_t kSendDescriptorMax = 1024;  // bytes
inline constexpr uint32_t kRecvDescriptorMax = 512;
inline constexpr uint32_t kSendBlock = 64;

}  // namespace cxemu
