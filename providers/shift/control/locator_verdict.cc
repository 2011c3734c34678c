// What follows from the trials of a case: the verdict, the groups that leave, and the record.
#include <algorithm>
#include <utility>

#include "control/locator.h"
#include "control/nic_watch.h"
#include "control/orders.h"
#include "control/reporter.h"
#include "control/sessions.h"
#include "group/context.h"
#include "group/locked.h"
#include "net/socket.h"
#include "util/log.h"
#include "util/planted.h"

namespace shift::control {

using group::Context;
using group::Detector;

namespace {

uint32_t us_since(Time begun, Time now) {
  return static_cast<uint32_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(now - begun).count());
}

// Where the peer's NIC is: by the address of its default NIC, and its place if it is another one.
std::string peer_text(const WayName& name) {
  const auto ip = name.peer.gid.ipv4();
  std::string text = ip ? net::IpText(*ip).text : net::GidText(name.peer.gid).text;
  if (name.to != group::kDefault) text += " NIC " + std::to_string(name.to);
  return text;
}

}  // namespace

// Another process has proof that the NIC here is broken. So what it does not answer at once counts
// as lost, and the groups need not wait until the NIC has given up. If it answers anything, or has
// completed a request, only this process's own proof counts.
void Locator::confirm(Case& one) {
  Trials likely = one.trials;
  for (const Way way : one.probing) likely[way] = Trial::kFailed;
  const bool is_silent = place_of(likely) == Place::kLocal && !has_traffic(one);
  if (is_silent || SHIFT_PLANT(hearsay_is_proof)) {
    return conclude(one, Place::kLocal,
                    "another process found the NIC broken, and it does not answer: " +
                        trials_text(one.trials, one.own, one.peer));
  }
  one.bound.start_at(one.begun + kGather, [this, name = one.name] {
    if (Case* found = find(name)) conclude_maybe(*found);
  });
}

void Locator::conclude_maybe(Case& one) {
  const Time now = loop_.now();
  if (one.is_over || now < one.begun + kGather) return;
  // Which of its NICs are down the peer has told those groups only that have met it.
  const Session* session = sessions_.find_if([&one](const Session& other) {
    return peer_of(other) == one.name.peer &&
           (other.search.is_proven() || SHIFT_PLANT(unmet_group_asked));
  });
  const bool peer_is_up = session == nullptr || (session->book.peer_up() >> one.name.to & 1) != 0;
  if (!peer_is_up) return conclude(one, Place::kRemote, "the peer says that its NIC is down");
  if (!one.probing.empty()) return;
  if (is_word_wanted(one.trials) && !one.has_waited) {
    one.has_waited = now >= one.begun + kWord;
    if (!one.has_waited) {
      return one.bound.start_at(one.begun + kWord, [this, name = one.name] {
        if (Case* found = find(name)) conclude_maybe(*found);
      });
    }
  }
  Place place = place_of(one.trials);
  std::string evidence = trials_text(one.trials, one.own, one.peer);
  if (place == Place::kLocal && has_traffic(one) && !SHIFT_PLANT(traffic_ignored)) {
    place = Place::kUnknown;
    evidence += ", and requests complete over the NIC";
  }
  conclude(one, place, std::move(evidence));
}

// Whether a group on the NIC here, which has not left it, has completed anything since the case
// began. Then the NIC is not dead, whatever the probes say.
bool Locator::has_traffic(const Case& one) const {
  return std::ranges::any_of(one.completed, [&](const auto& entry) {
    const Session* session = sessions_.find(entry.first);
    return session != nullptr && is_on(*session, one, Place::kLocal) &&
           completed_by(session->group) != entry.second;
  });
}

void Locator::conclude(Case& one, Place place, std::string evidence) {
  one.is_over = true;
  one.bound.cancel();
  if (place != Place::kUnknown) move(one, place);
  Incident incident{.device = one.device,
                    .peer = peer_text(one.name),
                    .place = place,
                    .detector = one.cause.detector,
                    .qps = static_cast<uint32_t>(one.left.size()),
                    .us = us_since(one.begun, loop_.now()),
                    .evidence = std::move(evidence)};
  if (place == Place::kLocal) {
    incident.peer.clear();
    join(one.device, incident);
    // The groups that leave come first.
    if (!one.is_hearsay)
      loop_.call_soon([this, device = one.device] { orders_.suspect_tell(device); });
  }
  // What another process has told and this one does not see is no incident here.
  if (incident.qps > 0) tell(incident);
}

// The NIC here is broken. Cases with other peers have met the same fault, and latecomers will.
void Locator::join(const std::string& device, Incident& incident) {
  const Time now = loop_.now();
  for (Case& other : cases_) {
    if (other.is_over || other.device != device) continue;
    other.is_over = true;
    other.bound.cancel();
    incident.qps += static_cast<uint32_t>(other.left.size());
    incident.us = std::max(incident.us, us_since(other.begun, now));
  }
  broken_[device] = now;
}

// Whether the session is on a path that a fault at this place concerns, and was before the case.
bool Locator::is_on(const Session& session, const Case& one, Place place) const {
  const auto& path = session.book.current();
  if (!path || session.is_self || session.control.state != fsm::State::kActive) return false;
  if (!group::is_protected(session.group) || since(session) > one.begun) return false;
  const bool is_own_nic = one.device == session.group.context->name(own_of(session, *path));
  if (place == Place::kLocal) return is_own_nic;
  const bool is_peers_nic =
      peer_of(session) == one.name.peer && peers_of(session, *path) == one.name.to;
  if (place == Place::kRemote) return is_peers_nic || SHIFT_PLANT(remote_moves_others);
  return is_own_nic && is_peers_nic;
}

// Has the groups leave that have not noticed by themselves.
void Locator::move(Case& one, Place place) {
  sessions_.for_each([&](Session& session) {
    if (!is_on(session, one, place)) return;
    one.left.insert(session.serial);
    loop_.call_soon([this, serial = session.serial, path = session.book.current()] {
      Session* const found = sessions_.find(serial);
      if (found == nullptr || found->book.current() != path) return;
      machine_.feed(*found, {.event = fsm::Event::kPathFault,
                             .cause = {"probes found its NIC broken", Detector::kNeighbour}});
    });
  });
}

void Locator::nic_lost(const Context* context, int member, group::Cause cause, uint32_t qps) {
  const std::string device = context->name(member);
  auto found = lost_.find(device);
  if (found == lost_.end()) {
    found = lost_.try_emplace(device, loop_).first;
    found->second.incident = {.device = device,
                              .peer = {},
                              .place = Place::kLocal,
                              .detector = cause.detector,
                              .evidence = cause.text};
    found->second.gather.start(kGather, [this, device] {
      const Incident incident = lost_.at(device).incident;
      lost_.erase(device);
      if (incident.qps > 0) tell(incident);
    });
  }
  found->second.incident.qps += qps;
  join(device, found->second.incident);
}

void Locator::tell(const Incident& incident) const {
  const char* device = incident.device.c_str();
  SHIFT_INFO_FEW("%s%s%s: the fault is %s (%s, after %u ms; QPs: %u): %s", device,
                 incident.peer.empty() ? "" : " to ", incident.peer.c_str(),
                 to_string(incident.place), incident.is_certain() ? "certain" : "not certain",
                 incident.us / 1000, incident.qps, incident.evidence.c_str());
  SHIFT_EVENT("incident", {{"device", device},
                           {"peer", std::string_view(incident.peer)},
                           {"place", to_string(incident.place)},
                           {"certain", incident.is_certain()},
                           {"detector", to_string(incident.detector)},
                           {"evidence", std::string_view(incident.evidence)},
                           {"qps", incident.qps},
                           {"us", incident.us}});
  reporter_.incident(incident);
}

}  // namespace shift::control
