// The checks that all commands have in common.
#include "uverbs/command_turn.h"

#include <cerrno>

namespace cxemu {

int CommandTurn::take(CommandTraits traits, bool starts) {
  lock_.lock();
  return check(traits, starts);
}

int CommandTurn::check(CommandTraits traits, bool starts) const {
  if (context_.orphaned() && (traits & kWorksInChild) == 0) return EIO;
  if (context_.started() == starts) return EINVAL;
  const bool dead = !context_.orphaned() && context_.nic().dead();
  return dead && (traits & kWorksWhenDead) == 0 ? EIO : 0;
}

}  // namespace cxemu
