// The checks and the wait that all commands have in common.
#include "uverbs/command_turn.h"

#include <cerrno>

namespace cxemu {

int CommandTurn::take(CommandTraits traits, bool starts) {
  const uint64_t begun_ns = monotonic_ns();
  for (bool held = false;; held = true) {
    // Read first: whatever changes after this line ends the sleep below.
    const uint32_t seen = context_.fabric()->change_count.load(std::memory_order_acquire);
    lock_.lock();
    if (const int error = check(traits, starts)) return error;
    const uint64_t due = due_ns(traits, begun_ns);
    if (due <= monotonic_ns()) return 0;
    lock_.unlock();
    if (!held) context_.fabric_nic().held_commands.fetch_add(1, std::memory_order_relaxed);
    context_.fabric().change_wait(seen, due);
  }
}

int CommandTurn::check(CommandTraits traits, bool starts) const {
  if (context_.orphaned() && (traits & kWorksInChild) == 0) return EIO;
  if (context_.started() == starts) return EINVAL;
  const bool dead = !context_.orphaned() && context_.nic().dead();
  return dead && (traits & kWorksWhenDead) == 0 ? EIO : 0;
}

// When the firmware has executed a command; UINT64_MAX: not before the fault ends.
uint64_t CommandTurn::due_ns(CommandTraits traits, uint64_t begun_ns) const {
  const FabricNic& nic = context_.fabric_nic();
  if ((traits & kKernelAnswers) != 0) return begun_ns;
  // A dead NIC gets no commands: the driver answers them. A child does not know whether its
  // parent's NIC was killed, but sees that it is dead now.
  const bool killed = !context_.orphaned() && context_.nic().dead();
  if (killed || (nic.faults.load(std::memory_order_acquire) & kDead) != 0) return begun_ns;
  const uint32_t delay_us = nic.command_delay_us.load(std::memory_order_acquire);
  return delay_us == kCommandsHang ? UINT64_MAX : begun_ns + uint64_t{delay_us} * 1000;
}

}  // namespace cxemu
