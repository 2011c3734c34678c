// Commands of the uverbs ABI. They arrive through write() or through the INVOKE_WRITE ioctl; both
// use one table, which gives the minimal length of each part of a command.
#pragma once

#include <rdma/mlx5-abi.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "uverbs/command_turn.h"
#include "uverbs/context.h"

namespace cxemu {

// The four parts of a command in application memory: request and answer, as defined by the core and
// extended by the driver (mlx5).
struct CommandIo {
  std::span<const uint8_t> core_in, driver_in;
  std::span<uint8_t> core_out, driver_out;
};

struct Command {
  uint32_t number;  // with IB_USER_VERBS_CMD_FLAG_EXTENDED if it is an extended one
  const char* name;
  // Minimal lengths; for commands that are not extended, the exact lengths of the core parts.
  size_t core_in, core_out, driver_in, driver_out;
  int (*run)(Context&, const CommandIo&);
  CommandTraits traits = kNoTraits;
};

// What the driver says about a context. `own_registers`: the application itself asks for register
// pages, one by one; otherwise it has one from the start.
mlx5_ib_alloc_ucontext_resp context_attributes(bool own_registers);

// The tables of the cmd_*.cc files.
std::span<const Command> device_commands();
std::span<const Command> memory_commands();
std::span<const Command> cq_commands();
std::span<const Command> srq_commands();
std::span<const Command> xrc_commands();
std::span<const Command> qp_commands();

// Returns nullptr if there is no such command.
const Command* command_find(uint32_t number);

// Execute a write() or ioctl() of a device file. They return 0 or an errno, and take the engine's
// lock.
int command_write(Context&, const void* data, size_t length);
// A context that is orphaned() answers only a few ioctls.
int command_ioctl(Context&, unsigned long request, void* argument);

// Reads a request of any length: missing bytes are zero, and unknown bytes must be zero.
template <typename T>
[[nodiscard]] bool request_read(std::span<const uint8_t> from, T* to) {
  *to = T{};
  if (!from.empty()) memcpy(to, from.data(), std::min(from.size(), sizeof *to));
  for (size_t i = sizeof *to; i < from.size(); ++i)
    if (from[i] != 0) return false;
  return true;
}

// Writes as much of the answer as the caller has room for.
template <typename T>
void answer_write(std::span<uint8_t> to, const T& from) {
  if (!to.empty()) memcpy(to.data(), &from, std::min(to.size(), sizeof from));
}

}  // namespace cxemu
