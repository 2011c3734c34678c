#include "control/key_exchange.h"

#include <algorithm>
#include <utility>

#include "control/jobs.h"
#include "group/keys.h"
#include "group/locked.h"
#include "group/replay.h"
#include "group/twins.h"
#include "util/config.h"
#include "util/log.h"
#include "util/planted.h"

namespace shift::control {

using fsm::Event;
using fsm::State;
using group::Group;
using std::chrono::milliseconds;

bool KeyExchange::ask() {
  Group& group = session_.group;
  const auto missing = group::rkeys_missing(group);
  auto keys = missing;
  if (asks_in_advance_ || SHIFT_PLANT(gone_keys_named_again)) {
    for (uint32_t recent : group::rkeys_recent(group))
      if (std::ranges::find(missing, recent) == missing.end()) keys.push_back(recent);
  }
  pending_ = !missing.empty();
  if (!keys.empty() && session_.search.channel() != nullptr) {
    query_id_ = next_query_++;
    asks_in_advance_ = false;
    asked_member_ = group.life.path.peer_member;
    asked_.clear();
    for (uint32_t rkey : keys) asked_.emplace(rkey, false);
    session_.search.send(wire::KeyQuery{session_.ends.local, session_.ends.remote,
                                        session_.control.epoch, query_id_,
                                        static_cast<uint8_t>(asked_member_), std::move(keys)});
  }
  return pending_;
}

void KeyExchange::say_again() {
  if (pending_) ask();
}

void KeyExchange::forget() {
  pending_ = false;
  asks_in_advance_ = true;
  query_id_ = next_query_++;  // an answer that is still under way is of no use
  asked_.clear();
  group::remote_keys_forget(session_.group);
  deadline_.cancel();
}

void KeyExchange::answer(const wire::KeyQuery& message, bool may_wait) {
  Group& group = session_.group;
  wire::KeyReply reply{
      session_.ends.local, session_.ends.remote, message.query_id, message.member, {}};
  group::twin_regions_want(group, message.member);
  for (uint32_t rkey : message.rkeys) {
    wire::KeyPair pair{rkey, 0, false};
    if (misses_.is_spent()) {
      SHIFT_WARN_LIMITED("qp 0x%x: the peer asks for too many memory keys that do not exist",
                         group.qpn());
      reply.keys.push_back(pair);
      continue;
    }
    // A peer of an older build does not forget keys that are gone.
    const auto state =
        session_.gone.peer_forgets()
            ? group::tell_key(group, message.member, rkey, &pair.new_rkey)
            : group::exported_key(*group.context, message.member, group.pd, rkey, &pair.new_rkey);
    if (state == group::KeyState::kPending && may_wait) {
      return answer_later(message);
    }
    pair.found = state == group::KeyState::kReady;
    if (state == group::KeyState::kMissing) misses_.spend();
    reply.keys.push_back(pair);
  }
  session_.search.send(reply);
}

void KeyExchange::answer_later(const wire::KeyQuery& message) {
  is_newer_ = waiting_.has_value();
  waiting_ = message;
  if (is_newer_) return;
  jobs_.after(session_, message.member, [](Session& session) {
    KeyExchange& keys = session.keys;
    const auto query = std::exchange(keys.waiting_, {});
    if (query) keys.answer(*query, keys.is_newer_);
  });
}

void KeyExchange::take(const wire::KeyReply& message) {
  if (message.query_id != query_id_ || message.member != asked_member_) return;
  Group& group = session_.group;
  // A key that the peer has said to be gone is asked for anew: the answer may be older than that.
  std::vector<wire::KeyPair> answers;
  for (const wire::KeyPair& pair : message.keys) {
    const auto asked = asked_.find(pair.rkey);
    if (asked != asked_.end() && !asked->second) answers.push_back(pair);
  }
  // Each key is answered once.
  for (const wire::KeyPair& pair : answers) asked_.erase(pair.rkey);
  group::remote_keys_add(group, message.member, answers);
  if (!pending_) return;  // the keys were asked for in advance, and no request waits
  const bool resumes = session_.control.state == State::kResuming;
  for (uint32_t rkey : group::rkeys_missing(group)) {
    const bool is_denied =
        std::ranges::any_of(answers, [&](const wire::KeyPair& pair) { return pair.rkey == rkey; });
    if (is_denied) return denied();
    const auto asked = asked_.find(rkey);
    // The replay has no place for a READ whose key is not known.
    if (resumes && asked != asked_.end() && asked->second) return static_cast<void>(ask());
  }
  deadline_.cancel();
  pending_ = false;
  if (resumes) {
    return machine_.feed(session_, {.event = Event::kKeysReady});
  }
  pump();
}

void KeyExchange::take(const wire::KeysGone& message) {
  if (SHIFT_PLANT(keys_gone_ignored)) {
  } else if (message.all) {
    group::remote_keys_forget(session_.group);
    for (auto& [rkey, is_gone] : asked_) is_gone = true;
  } else {
    group::remote_keys_forget(session_.group, message.rkeys);
    for (uint32_t rkey : message.rkeys) {
      const auto asked = asked_.find(rkey);
      if (asked != asked_.end()) asked->second = true;
    }
  }
  // Requests that the path was given with the old keys are none of the peer's concern: its
  // application has seen them executed, or lets them fail.
  session_.search.send(
      wire::KeysForgotten{session_.ends.local, session_.ends.remote, message.number});
}

// The key is as unknown at the peer as it would be to the default NIC, so this is the application's
// error.
void KeyExchange::denied() {
  group::original_error_suggest(session_.group, IBV_WC_REM_ACCESS_ERR, 0x88);
  pending_ = false;
  machine_.feed(session_, {.event = Event::kReplayRefused,
                           .cause = "the peer does not know a memory key",
                           .refusal = wire::RefuseReason::kKeyMissing});
}

void KeyExchange::pump_wanted() {
  Group& group = session_.group;
  if (pending_) return;
  // A round that has begun since leaves the path of these keys, and asks for the keys of the next
  // path.
  if (fsm::kLeaving.has(session_.control.state)) return;
  if (session_.control.state == State::kClosed) return flush();
  if (is_left_waiting()) return refuse(kNobodyAnswers);
  const bool registers = group::waits_for_registration(group);
  // An answer that was asked for in advance may have come between the post that missed the key and
  // this call. Then nothing is missing, and no further answer will set the queue going.
  if (!ask() && !registers) return pump();
  if (registers && !std::exchange(registering_, true)) await_registration();
  if (deadline_.is_running()) return;
  waiting_since_ = loop_.now();
  deadline_look();
}

// Nothing waits for ever (C6).
void KeyExchange::deadline_look() {
  const Time now = loop_.now();
  const Time give_up_at = waiting_since_ + session_.patience();
  if (now < give_up_at) {
    const Time look_at = now + milliseconds(config().exchange_ms);
    return deadline_.start_at(std::min(give_up_at, look_at), [this] { deadline_look(); });
  }
  const bool registers = group::waits_for_registration(session_.group);
  if (!pending_ && !registers) return;
  refuse(registers ? "a region is still being registered with the other NIC"
                   : "the peer does not answer for a memory key");
}

void KeyExchange::refuse(const char* cause) {
  machine_.feed(session_, {.event = Event::kReplayRefused, .cause = cause});
}

bool KeyExchange::is_left_waiting() {
  // The keys of the peer's default NIC need no translation. (The queue may be hot there, and is
  // not to be looked at.)
  if (!session_.over || session_.group.life.path.peer_member == group::kDefault) return false;
  return !group::rkeys_missing(session_.group).empty();
}

void KeyExchange::flush() {
  Group& group = session_.group;
  pending_ = false;
  deadline_.cancel();
  if (!group.life.path.off_default || group.life.path.member == group::kNoMember) return;
  if (group::flush_waiting(group) != 0) session_.failing.begin();
}

// The command thread is registering the region: the requests go on after that.
void KeyExchange::await_registration() {
  go_on_again_.start(milliseconds(1), [this] {
    const bool goes_on = !pending_ && !fsm::kLeaving.has(session_.control.state);
    if (goes_on && group::waits_for_registration(session_.group)) return await_registration();
    registering_ = false;
    if (!goes_on) return;
    deadline_.cancel();
    pump();
  });
}

// Posts what was parked.
void KeyExchange::pump() {
  const int error = group::go_on(session_.group);
  if (error == 0) return;
  machine_.feed(session_, {.event = group::post_blames_path(error) ? Event::kPathFault
                                                                   : Event::kReplayRefused,
                           .cause = {"a request could not be posted", group::Detector::kPost}});
}

}  // namespace shift::control
