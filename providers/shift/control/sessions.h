// The sessions of this process, found by number and by name. Only the control loop uses this.
//
// A session whose group ends (group/ending.h) is left alone until it is forgotten: only the
// functions that say so find it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "control/session.h"
#include "wire/names.h"

namespace shift::control {

class Sessions {
 public:
  // Null if there is no such session, or none any more.
  Session* find(uint64_t serial) const { return unless_ending(find_any(serial)); }
  Session* find(const wire::QpName& local) const { return unless_ending(find_any(local)); }
  // These find it although its group ends, too.
  Session* find_any(uint64_t serial) const {
    const auto it = by_serial_.find(serial);
    return it == by_serial_.end() ? nullptr : it->second.get();
  }
  Session* find_any(const wire::QpName& local) const {
    const auto it = by_name_.find(local);
    return it == by_name_.end() ? nullptr : it->second;
  }
  // All sessions of the context, those whose groups end included.
  std::vector<Session*> all_of(const group::Context* context) const {
    std::vector<Session*> all;
    for (const auto& [serial, session] : by_serial_) {
      if (session->group.context == context) all.push_back(session.get());
    }
    return all;
  }
  // Those included whose groups end.
  size_t count() const { return by_serial_.size(); }
  Session& add(std::unique_ptr<Session> made) {
    Session& session = *made;
    by_name_[session.ends.local] = made.get();
    by_serial_[session.serial] = std::move(made);
    return session;
  }
  void remove(Session& session) {
    by_name_.erase(session.ends.local);
    by_serial_.erase(session.serial);
  }

  // The order is arbitrary. `then` must not add or remove sessions.
  template <typename Then>
  void for_each(const Then& then) const {
    for (const auto& [serial, session] : by_serial_) {
      if (!session->group.is_ending) then(*session);
    }
  }
  // Any session of which `is` is true; null if there is none.
  template <typename Is>
  Session* find_if(const Is& is) const {
    for (const auto& [serial, session] : by_serial_) {
      if (!session->group.is_ending && is(*session)) return session.get();
    }
    return nullptr;
  }
  template <typename Then>
  void for_each_of(const group::Context* context, const Then& then) const {
    for (const auto& [serial, session] : by_serial_) {
      if (session->group.context == context && !session->group.is_ending) then(*session);
    }
  }

 private:
  static Session* unless_ending(Session* session) {
    return session == nullptr || session->group.is_ending ? nullptr : session;
  }

  std::unordered_map<uint64_t, std::unique_ptr<Session>> by_serial_;
  std::map<wire::QpName, Session*> by_name_;
};

}  // namespace shift::control
