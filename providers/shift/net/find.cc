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
constexpr std::chrono::milliseconds kPauseMin = 10ms;
constexpr std::chrono::milliseconds kPauseMax = 640ms;
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
      return "nobody on the link answers for the peer's GID";
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

void Finder::attempt(const FindPtr& find) {
  const FindRequest& request = find->request;
  const uint32_t local =
      request.local_ip_be != 0 ? request.local_ip_be : request.local.gid.ipv4().value_or(0);
  if (local == 0) return finish(find, nullptr, FindError::kUnsupportedGid);
  // This process owns both QPs, so there is no process to look for.
  if (host_.owns_qp(request.remote)) return finish(find, host_.self_channel(), FindError::kNone);
  auto remote = request.remote.gid.ipv4();
  if (!remote) remote = rendezvous_.gid_address(local, request.remote.gid);
  if (!remote) return ask_subnet(find, local);
  find->pair = {local, *remote};
  const wire::Hello hello = hello_for(*find);
  for (Channel* channel : host_.channels_at(*remote))
    if (find->asked.insert(channel->peer()).second && channel->send(hello) != 0) {
      find->open.insert(channel->peer());
      find->asking = true;
    }
  if (!find->asking) return attempt_dial(find);
  find->timer = reactor_.timer_start(kAskTimeout, [this, find] { asking_end(find); });
}

// The peer's GID holds no address, but a host on the link may know the address that belongs to it.
void Finder::ask_subnet(const FindPtr& find, uint32_t local_ip_be) {
  rendezvous_.gid_ask(local_ip_be, find->request.remote.gid,
                      [this, weak = std::weak_ptr(find)](bool answered) {
                        const FindPtr asker = weak.lock();
                        if (!asker || !asker->callback) return;
                        if (answered) return attempt(asker);
                        attempt_failed(asker, FindError::kNoAnswer);
                      });
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

void Finder::attempt_dial(const FindPtr& find) {
  const AddressPair pair = find->pair;
  if (dials_.count(pair) != 0) {
    find->waiting = true;
    return;
  }
  // The dial goes on when this search ends first, because other searches may wait for it.
  dials_[pair] =
      rendezvous_.dial(pair.first, pair.second, hello_for(*find),
                       [this, pair, weak = std::weak_ptr(find)](DialError error, Joining joining) {
                         on_dialed(pair, weak, error, std::move(joining));
                       });
}

std::vector<Finder::FindPtr> Finder::take_waiting(AddressPair pair) {
  std::vector<FindPtr> waiting;
  for (auto& [names, find] : finds_)
    if (find->waiting && find->pair == pair) {
      find->waiting = false;
      waiting.push_back(find);
    }
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
      attempt_failed(find, find_error(error));
  }
  // A result about the address holds for all searches; a result about the QP holds only for the
  // search that dialed.
  const bool about_address = error == DialError::kNobody || error == DialError::kUnreachable;
  for (const FindPtr& find : waiting) {
    if (!find->callback) continue;  // another search's callback has ended it
    if (about_address) {
      attempt_failed(find, find_error(error));
    } else {
      // The channel that has just got this connection is asked first.
      if (channel != nullptr) find->asked.erase(channel->peer());
      attempt(find);
    }
  }
}

void Finder::attempt_failed(const FindPtr& find, FindError error) {
  if (!find->callback) return;
  find->last = error;
  find->asked.clear();
  const bool is_nobody = error == FindError::kNoShift || error == FindError::kNoAnswer;
  find->nobody = is_nobody ? find->nobody + 1 : 0;
  if (find->nobody >= kNobodyMax) return finish(find, nullptr, error);
  if (!find->request.remote.gid.ipv4() && error != FindError::kNoAnswer) {
    // The address may be right, while the process there has not made its QP yet.
    const bool may_come = error == FindError::kNoSuchQp && find->attempts % 4 != 3;
    if (!may_come) rendezvous_.gid_doubt(find->pair.first, find->request.remote.gid);
  }
  const auto pause = std::min(kPauseMin * (1 << std::min(find->attempts++, 10)), kPauseMax);
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
