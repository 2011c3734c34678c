// Sealed frames: messages of a channel that only holders of the job key can make or read. A message
// is sealed once, whatever the number of connections that it goes over.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "net/proof.h"
#include "wire/messages.h"

namespace shift::net {

// Which way a frame goes. Each way between two processes has a key of its own, which follows from
// the job key; since a process never gives one number to two frames, no key meets a number twice.
struct Way {
  const wire::Instance& from;
  const wire::Instance& to;
};

// The id of the job key with which a complete, sealed frame was made.
uint64_t sealed_with(std::span<const uint8_t> frame);

// Seals one encoded message in place. Returns false without memory.
[[nodiscard]] bool seal(SecretKey job_key, uint64_t id, const Way& way,
                        std::vector<uint8_t>& frame);

// Writes the encoded message of a complete, sealed frame to `out`. Returns false when the frame was
// not made with this key for this way, or was changed, or without memory.
[[nodiscard]] bool unseal(SecretKey job_key, const Way& way, std::span<const uint8_t> frame,
                          std::vector<uint8_t>& out);

}  // namespace shift::net
