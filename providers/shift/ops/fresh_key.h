// Keeps numbers of keys from the application that a peer may still take for another region's
// (group/told_keys.h). Cold, unless no number is withheld.
#pragma once

#include <array>
#include <chrono>
#include <mutex>

#include "group/context.h"
#include "util/config.h"
#include "util/log.h"

namespace shift::ops {

inline constexpr size_t kFreshTries = 16;

// The bound for a wait for peers, which answer within a round trip if they can be reached.
inline std::chrono::steady_clock::time_point fresh_deadline() {
  return std::chrono::steady_clock::now() + std::chrono::milliseconds(config().exchange_ms);
}

inline void tell_of_withheld(const group::Context& context, uint32_t key) {
  SHIFT_WARN_LIMITED(
      "%s: the NIC gives out the key 0x%x anew, and a peer has not said within %d ms that it has "
      "forgotten the old one: ENOMEM",
      context.device->dev.name, key, config().exchange_ms);
}

// Whether a number is withheld that the object has, or may get.
inline bool is_withheld(const group::ToldKeys& told, const ibv_mr& region) {
  return told.withholds(region.rkey);
}
// Each bind changes the last byte of a window's key.
inline bool is_withheld(const group::ToldKeys& told, const ibv_mw& window) {
  for (uint32_t last = 0; last <= 0xff; last++) {
    if (told.withholds((window.rkey & ~0xffu) | last)) return true;
  }
  return false;
}

// `made` has a withheld number, so the NIC makes others while it holds that one. When `tries`
// objects have such numbers, or memory is short, waits until a peer has forgotten one of them.
template <typename Object, typename Make, typename Drop>
[[gnu::cold, gnu::noinline]] Object* fresh_slow(group::Context& context, Object* made,
                                                const Make& make, const Drop& drop, size_t tries,
                                                std::chrono::steady_clock::time_point deadline) {
  std::array<Object*, kFreshTries> held{};
  size_t count = 0;
  Object* good = nullptr;
  int error = ENOMEM;
  std::unique_lock lock(context.mutex);
  while (made != nullptr) {
    if (!is_withheld(context.told_keys, *made)) {
      good = made;
      break;
    }
    held[count++] = made;
    if (count == tries || context.told_keys.withholds_every()) break;
    lock.unlock();
    made = make();
    if (made == nullptr) error = errno;
    lock.lock();
  }
  if (good == nullptr && count != 0 && error == ENOMEM) {
    (void)context.told_keys.await(lock, deadline, [&] {
      for (size_t i = 0; i < count && good == nullptr; i++) {
        if (!is_withheld(context.told_keys, *held[i])) good = held[i];
      }
      return good != nullptr;
    });
  }
  lock.unlock();
  if (good == nullptr && count != 0 && error == ENOMEM) tell_of_withheld(context, held[0]->rkey);
  for (size_t i = 0; i < count; i++) {
    if (held[i] != good) drop(held[i]);
  }
  if (good == nullptr) errno = error;
  return good;
}

// Returns `made`, or another object of make() whose number is not withheld; nullptr, with errno
// set: there is none. `drop` destroys what make() has made.
template <typename Object, typename Make, typename Drop>
Object* fresh(group::Context& context, Object* made, const Make& make, const Drop& drop,
              size_t tries = kFreshTries) {
  if (made == nullptr || !context.told_keys.withholds_any()) return made;
  return fresh_slow(context, made, make, drop, tries, fresh_deadline());
}

}  // namespace shift::ops
