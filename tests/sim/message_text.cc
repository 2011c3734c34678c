#include "sim/message_text.h"

namespace shift::sim {
namespace {

using std::to_string;

std::string path(wire::PathName name, uint32_t generation) {
  return " path " + to_string(name.leader) + "-" + to_string(name.follower) + " generation " +
         to_string(generation);
}

struct Words {
  std::string operator()(const wire::Bind& m) const {
    return " members up " + to_string(m.members_up);
  }
  std::string operator()(const wire::Offer& m) const { return path(m.path, m.generation); }
  std::string operator()(const wire::Accept& m) const {
    static constexpr const char* kStatus[] = {" accepted", " refused", " busy"};
    return path(m.path, m.generation) + (m.status < 3 ? kStatus[m.status] : " ?");
  }
  std::string operator()(const wire::Ready& m) const {
    static constexpr const char* kKinds[] = {" ready", " asked", " broken"};
    return path(m.path, m.generation) + kKinds[static_cast<size_t>(m.kind) % 3];
  }
  std::string operator()(const wire::Members& m) const { return " up " + to_string(m.up); }
  std::string operator()(const wire::Avoid& m) const { return " leave " + to_string(m.members); }
  std::string operator()(const wire::Nics& m) const { return " " + to_string(m.nics.size()); }
  std::string operator()(const wire::Probe& m) const {
    static constexpr const char* kKinds[] = {" offer", " accept", " refuse", " told"};
    return kKinds[static_cast<size_t>(m.kind) % 4] + (" " + to_string(m.own)) + "-" +
           to_string(m.peer);
  }
  std::string operator()(const wire::Drain& m) const {
    static constexpr const char* kKinds[] = {" ask", " done", " cancel"};
    return kKinds[static_cast<size_t>(m.kind) % 3] + (" attempt " + to_string(m.attempt)) +
           " epoch " + to_string(m.epoch);
  }
  std::string operator()(const wire::Switch& m) const { return " epoch " + to_string(m.epoch); }
  std::string operator()(const wire::Progress& m) const {
    return " epoch " + to_string(m.epoch) + " received " + to_string(m.notifications_received) +
           path(m.target, m.generation);
  }
  std::string operator()(const wire::KeysGone& m) const {
    return " number " + to_string(m.number) + (m.all ? " all" : "");
  }
  std::string operator()(const wire::KeysForgotten& m) const {
    return " number " + to_string(m.number);
  }
  std::string operator()(const wire::Refuse& m) const {
    return " epoch " + to_string(m.epoch) + " reason " + to_string(static_cast<int>(m.reason));
  }
  template <typename Other>
  std::string operator()(const Other&) const {
    return {};
  }
};

}  // namespace

std::string message_text(const wire::Message& message) {
  return wire::message_name(message) + std::visit(Words{}, message);
}

}  // namespace shift::sim
