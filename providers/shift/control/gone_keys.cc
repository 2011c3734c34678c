#include "control/gone_keys.h"

#include <utility>

#include "control/session.h"
#include "group/context.h"
#include "group/keys.h"

namespace shift::control {

void GoneKeys::say() {
  group::Context& context = *session_.group.context;
  std::optional<group::ToldKeys::Gone> gone;
  {
    std::lock_guard lock(context.mutex);
    gone = context.told_keys.say(session_.serial);
  }
  if (!gone) return;
  number_ = next_number_++;
  send(std::move(*gone));
}

void GoneKeys::say_again() {
  group::Context& context = *session_.group.context;
  std::optional<group::ToldKeys::Gone> gone;
  {
    std::lock_guard lock(context.mutex);
    gone = context.told_keys.unanswered(session_.serial);
  }
  if (gone) send(std::move(*gone));
}

void GoneKeys::take(const wire::KeysForgotten& message) {
  if (message.number != number_) return;
  group::Context& context = *session_.group.context;
  {
    std::lock_guard lock(context.mutex);
    if (!context.told_keys.forgotten(session_.serial)) return;
  }
  say();
}

void GoneKeys::over() {
  group::told_keys_forget(session_.group);
}

void GoneKeys::send(group::ToldKeys::Gone gone) {
  session_.search.send(wire::KeysGone{session_.ends.local, session_.ends.remote,
                                      session_.control.epoch, number_, gone.all,
                                      std::move(gone.rkeys)});
}

}  // namespace shift::control
