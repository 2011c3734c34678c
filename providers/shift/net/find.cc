// The search for the process that owns a remote QP.
#include "net/find.h"

#include <algorithm>

#include "net/channel.h"
#include "net/socket.h"
#include "util/log.h"

namespace shift::net {

using namespace std::chrono_literals;

namespace {
// When all connections of a channel are black holes, the question gets no answer. After this time,
// the search dials instead.
constexpr std::chrono::milliseconds kAskTimeout = 500ms;
// So long the usual address is dialed alone. A healthy one answers much sooner.
constexpr std::chrono::milliseconds kHeadStart = 50ms;
constexpr std::chrono::milliseconds kLookPauseMin = 10ms;
constexpr std::chrono::milliseconds kLookPauseMax = 640ms;
// A port gets a new owner within milliseconds, and the control threads of both ends start at about
// the same time. So a second of refusals (10 + 20 + ... + 640 ms) means that no process is going to
// listen.
constexpr int kNobodyMax = 8;

FindError find_error(DialError error) {
  switch (error) {
    case DialError::kNone:
      return FindError::kNone;
    case DialError::kNobody:
      return FindError::kNoShift;
    case DialError::kNoSuchQp:
      return FindError::kNoSuchQp;
    case DialError::kRefused:
      return FindError::kRefused;
    case DialError::kUnreachable:
      break;
  }
  return FindError::kUnreachable;
}

}  // namespace

const char* find_error_name(FindError error) noexcept {
  switch (error) {
    case FindError::kNone:
      return "found";
    case FindError::kUnsupportedGid:
      return "the port of its GID has no IPv4 address";
    case FindError::kNoAnswer:
      return "nobody says where the peer's GID is";
    case FindError::kNoShift:
      return "no SHIFT at the peer";
    case FindError::kNoSuchQp:
      return "no process of the peer's host owns the QP";
    case FindError::kUnreachable:
      return "the peer cannot be reached";
    case FindError::kRefused:
      return "the peer refuses";
    case FindError::kStopped:
      return "stopped";
  }
  return "?";
}

Finder::~Finder() {
  for (auto& [names, find] : finds_) {
    reactor_.timer_cancel(find->timer);
    reactor_.timer_cancel(find->deadline);
  }
  for (auto& [pair, dial] : dials_) rendezvous_.dial_cancel(dial);
}

void Finder::start(const FindRequest& request, FindCallback callback) {
  const auto find = std::make_shared<Find>();
  find->request = request;
  find->callback = std::move(callback);
  finds_.emplace(std::pair(request.remote, request.local), find);
  // The search itself runs from the loop, because the callback must not run inside this call.
  find->timer = reactor_.timer_start(Reactor::Clock::now(), [this, find] {
    find->timer = 0;
    attempt(find);
  });
  find->deadline = reactor_.timer_start(request.deadline, [this, find] {
    find->deadline = 0;
    finish(find, nullptr, find->last);
  });
}

wire::Hello Finder::hello_for(const Find& find) const {
  wire::Hello hello;
  hello.instance = host_.own_instance();
  hello.want = find.request.remote;
  hello.from = find.request.local;
  return hello;
}

// The usual pair comes first, and is alone as long as nothing is known of other addresses of either
// host, or of a use for them.
void Finder::pairs_choose(Find& find, uint32_t local_ip_be, std::optional<uint32_t> remote_ip_be) {
  const FindRequest& request = find.request;
  std::vector<uint32_t> locals = request.more_local_ip_be;
  if (local_ip_be != 0) locals.insert(locals.begin(), local_ip_be);
  find.pairs.clear();
  const auto add = [&find](uint32_t local, uint32_t remote) {
    if (find.pairs.size() < kPairsMax) find.pairs.emplace_back(local, remote);
  };
  if (remote_ip_be) {
    for (const uint32_t local : locals) add(local, *remote_ip_be);
  }
  // A further address may be of a network that no NIC is in: there, the kernel chooses.
  for (const uint32_t remote : host_.others(request.remote.gid)) {
    if (!host_.looks_by_gid()) add(0, remote);
    for (const uint32_t local : locals) add(local, remote);
    if (host_.looks_by_gid()) add(0, remote);
  }
  const bool has_usual = local_ip_be != 0 && remote_ip_be && request.is_first_usable;
  find.spare = has_usual ? 1 : 0;
  find.dialed = 0;
  find.dialing.clear();
  find.waiting.clear();
  find.worst = FindError::kNoShift;
}

void Finder::attempt(const FindPtr& find) {
  const FindRequest& request = find->request;
  const uint32_t local =
      request.local_ip_be != 0 ? request.local_ip_be : request.local.gid.ipv4().value_or(0);
  // This process owns both QPs, so there is no process to look for.
  if (host_.owns_qp(request.remote)) return finish(find, host_.self_channel(), FindError::kNone);
  std::optional<uint32_t> remote;
  if (host_.looks_by_gid()) {
    remote = request.remote.gid.ipv4();
    if (!remote && local != 0) remote = rendezvous_.gid_address(local, request.remote.gid);
  }
  pairs_choose(*find, local, remote);
  if (find->pairs.empty()) return ask_address(find, local);
  const wire::Hello hello = hello_for(*find);
  for (const AddressPair& pair : find->pairs) {
    for (Channel* channel : host_.channels_at(pair.second))
      if (find->asked.insert(channel->peer()).second && channel->send(hello) != 0) {
        find->open.insert(channel->peer());
        find->asking = true;
      }
  }
  if (!find->asking) return attempt_dial(find);
  find->timer = reactor_.timer_start(kAskTimeout, [this, find] { asking_end(find); });
}

// No address is known for the peer's GID. A host on the link may know it, and so may the store. The
// first answer serves; without one, the attempt is over when both have been heard.
void Finder::ask_address(const FindPtr& find, uint32_t local_ip_be) {
  const wire::Gid& gid = find->request.remote.gid;
  struct Questions {
    size_t open = 0;
    FindError error = FindError::kNoAnswer;
  };
  const auto questions = std::make_shared<Questions>();
  const auto heard = [this, questions, weak = std::weak_ptr(find)](bool answered) {
    const FindPtr asker = weak.lock();
    if (!asker || !asker->callback || questions->open == 0) return;
    questions->open = answered ? 0 : questions->open - 1;
    if (answered) return attempt(asker);
    if (questions->open == 0) attempt_failed(asker, questions->error);
  };
  const bool asks_store = host_.look_up(gid, [questions, heard](Stored stored) {
    if (stored == Stored::kAway) questions->error = FindError::kUnreachable;
    heard(stored == Stored::kFound);
  });
  const bool asks_link = host_.looks_by_gid() && local_ip_be != 0 && !gid.ipv4();
  questions->open = size_t{asks_store} + size_t{asks_link};
  if (asks_link) rendezvous_.gid_ask(local_ip_be, gid, heard);
  if (questions->open != 0) return;
  if (!host_.has_store()) return finish(find, nullptr, FindError::kUnsupportedGid);
  attempt_failed(find, questions->error);  // the store has just answered
}

void Finder::asking_end(const FindPtr& find) {
  reactor_.timer_cancel(std::exchange(find->timer, 0));
  find->asking = false;
  attempt_dial(find);
}

void Finder::on_reply(Channel& channel, const wire::HelloReply& reply) {
  const auto range = finds_.equal_range({reply.want, reply.from});
  std::vector<FindPtr> concerned;
  for (auto it = range.first; it != range.second; ++it) concerned.push_back(it->second);
  for (const FindPtr& find : concerned) {
    // The peer was not asked, or has answered already.
    if (find->open.erase(channel.peer()) == 0) continue;
    if (reply.status == wire::HelloStatus::kOk) {
      finish(find, &channel, FindError::kNone);
    } else if (reply.status == wire::HelloStatus::kRefused) {
      finish(find, nullptr, FindError::kRefused);
    } else if (find->asking && find->open.empty()) {
      asking_end(find);
    }
  }
}

void Finder::on_channel_down(const wire::Instance& peer) {
  std::vector<FindPtr> concerned;
  for (auto& [names, find] : finds_)
    if (find->open.erase(peer) != 0 && find->open.empty() && find->asking)
      concerned.push_back(find);
  for (const FindPtr& find : concerned) asking_end(find);
}

// The usual address does not answer, or nobody there knows the peer. If the store names others, the
// search goes on with these, too.
void Finder::look_further(const FindPtr& find) {
  (void)host_.look_up(find->request.remote.gid, [this, weak = std::weak_ptr(find)](Stored stored) {
    const FindPtr asker = weak.lock();
    if (!asker || !asker->callback || asker->asking || stored != Stored::kFound) return;
    reactor_.timer_cancel(std::exchange(asker->timer, 0));
    attempt(asker);
  });
}

void Finder::attempt_dial(const FindPtr& find) {
  if (find->spare == 0) {
    look_further(find);
    return dial_up_to(find, find->pairs.size());
  }
  find->timer = reactor_.timer_start(kHeadStart, [this, find] {
    find->timer = 0;
    look_further(find);
    dial_up_to(find, find->pairs.size());
  });
  dial_up_to(find, find->spare);
}

void Finder::dial_up_to(const FindPtr& find, size_t count) {
  while (find->dialed < count) {
    const AddressPair pair = find->pairs[find->dialed++];
    find->dialing.insert(pair);
    if (dials_.count(pair) != 0) {
      find->waiting.insert(pair);
      continue;
    }
    // The dial goes on when this search ends first, because other searches may wait for it.
    dials_[pair] = rendezvous_.dial(
        pair.first, pair.second, hello_for(*find),
        [this, pair, weak = std::weak_ptr(find)](DialError error, Joining joining) {
          on_dialed(pair, weak, error, std::move(joining));
        });
  }
}

std::vector<Finder::FindPtr> Finder::take_waiting(AddressPair pair) {
  std::vector<FindPtr> waiting;
  for (auto& [names, find] : finds_)
    if (find->waiting.erase(pair) != 0) waiting.push_back(find);
  return waiting;
}

void Finder::on_dialed(AddressPair pair, const std::weak_ptr<Find>& dialer, DialError error,
                       Joining joining) {
  dials_.erase(pair);
  const std::vector<FindPtr> waiting = take_waiting(pair);
  Channel* channel = nullptr;
  if (error == DialError::kNone) {
    channel = host_.join_dialed(std::move(joining));
    if (channel == nullptr) error = DialError::kUnreachable;
  }
  if (const FindPtr find = dialer.lock()) {
    if (channel != nullptr)
      finish(find, channel, FindError::kNone);
    else if (error == DialError::kRefused)
      finish(find, nullptr, find_error(error));
    else
      pair_failed(find, pair, find_error(error));
  }
  // A result about the address holds for all searches; a result about the QP holds only for the
  // search that dialed.
  const bool about_address = error == DialError::kNobody || error == DialError::kUnreachable;
  for (const FindPtr& find : waiting) {
    if (!find->callback) continue;  // another search's callback has ended it
    if (about_address) {
      pair_failed(find, pair, find_error(error));
    } else if (find->dialing.contains(pair)) {
      // The channel that has just got this connection is asked first.
      if (channel != nullptr) find->asked.erase(channel->peer());
      reactor_.timer_cancel(std::exchange(find->timer, 0));
      attempt(find);
    }
  }
}

// An attempt is over when its pairs have failed, or when a process of the peer's host has answered
// that there is no such QP yet: others, which a dead NIC swallows, may take seconds.
void Finder::pair_failed(const FindPtr& find, AddressPair pair, FindError error) {
  if (!find->callback || find->dialing.erase(pair) == 0) return;
  if (error != FindError::kNoShift) find->worst = error;
  const bool is_answer = error == FindError::kNoSuchQp;
  if (!is_answer && find->dialed < find->pairs.size()) {
    reactor_.timer_cancel(std::exchange(find->timer, 0));
    return dial_up_to(find, find->pairs.size());
  }
  if (!is_answer && !find->dialing.empty()) return;
  reactor_.timer_cancel(std::exchange(find->timer, 0));
  find->dialing.clear();
  find->waiting.clear();
  attempt_failed(find, is_answer ? error : find->worst);
}

void Finder::attempt_failed(const FindPtr& find, FindError error) {
  if (!find->callback) return;
  find->last = error;
  find->asked.clear();
  const bool is_nobody = error == FindError::kNoShift || error == FindError::kNoAnswer;
  find->nobody = is_nobody ? find->nobody + 1 : 0;
  if (find->nobody >= kNobodyMax) return finish(find, nullptr, error);
  if (!find->request.remote.gid.ipv4() && !find->pairs.empty()) {
    // The address may be right, while the process there has not made its QP yet.
    const bool may_come = error == FindError::kNoSuchQp && find->attempts % 4 != 3;
    if (!may_come && find->pairs.front().first != 0)
      rendezvous_.gid_doubt(find->pairs.front().first, find->request.remote.gid);
  }
  if (error != FindError::kNoSuchQp) look_further(find);
  const auto pause = std::min(kLookPauseMin * (1 << std::min(find->attempts++, 10)), kLookPauseMax);
  find->timer = reactor_.timer_start(pause, [this, find] {
    find->timer = 0;
    attempt(find);
  });
}

void Finder::finish(const FindPtr& find, Channel* channel, FindError error) {
  if (!find->callback) return;
  reactor_.timer_cancel(find->timer);
  reactor_.timer_cancel(find->deadline);
  const auto range = finds_.equal_range({find->request.remote, find->request.local});
  for (auto it = range.first; it != range.second; ++it)
    if (it->second == find) {
      finds_.erase(it);
      break;
    }
  const FindCallback callback = std::exchange(find->callback, nullptr);
  callback(channel, error);
}

void Finder::stop() {
  while (!finds_.empty()) {
    const FindPtr find = finds_.begin()->second;
    finish(find, nullptr, FindError::kStopped);
  }
}

}  // namespace shift::net
