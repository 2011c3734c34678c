// The control network of this process: finds the process that owns a remote QP, and keeps one
// channel per peer process. Everything here happens on the reactor thread; the caller brings calls
// there with Reactor::call_soon.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "control/channel.h"
#include "control/reactor.h"
#include "control/rendezvous.h"
#include "wire/messages.h"

namespace shift::control {

// What the owner of the QPs implements. Called on the reactor thread only.
class Delegate {
 public:
  virtual ~Delegate() = default;

  // Is this one of our default QPs? Asked by peers, and on behalf of them by other local processes.
  virtual bool knows_qp(const wire::QpName& name) = 0;
  // May this asker talk to us (do its PSNs fit, where they are known already)? Called only when
  // `hello.want` is ours.
  virtual bool accepts(const wire::Hello& hello) { return true; }

  // Never a Hello or HelloReply. The channel is valid until its on_channel_down returns.
  virtual void on_message(Channel* channel, const wire::Message& message) = 0;
  // A connection joined (`first`: the channel is new): repeat whatever was not answered.
  virtual void on_connection_up(Channel* channel, bool first) {}
  // Every connection is lost and none came back during the grace period. The channel is deleted
  // afterwards. This says nothing about the peer's RDMA traffic.
  virtual void on_channel_down(Channel* channel) = 0;
};

enum class FindError : uint8_t {
  kNone = 0,
  kUnsupportedGid,  // this rendezvous reaches IPv4-mapped GIDs only
  kNoShift,         // nobody listens there: the peer runs without SHIFT
  kNoSuchQp,        // SHIFT is there, but no process owned the QP until the deadline
  kUnreachable,     // no connection until the deadline
  kRefused,         // the owner does not want us
  kStopped,         // the PeerNet ended
};
const char* find_error_name(FindError error) noexcept;

struct FindRequest {
  wire::QpName remote;
  wire::QpName local;
  uint32_t local_sq_psn = 0;  // proofs, see wire::Hello
  uint32_t local_rq_psn = 0;
  Reactor::Clock::time_point deadline;
};
using FindCallback = std::function<void(Channel* channel, FindError error)>;

struct PeerNetOptions {
  uint16_t port = 9473;
  std::chrono::milliseconds grace{3000};  // from the last connection lost to on_channel_down
};

class PeerNet {
 public:
  // `reactor` and `delegate` outlive it. Made, used and destroyed on the reactor thread (or while
  // the reactor does not run).
  PeerNet(Reactor& reactor, Delegate& delegate, PeerNetOptions options);
  ~PeerNet();
  PeerNet(const PeerNet&) = delete;
  PeerNet& operator=(const PeerNet&) = delete;

  const wire::Instance& instance() const noexcept { return instance_; }

  // This NIC address is ours: peers may look for our QPs there. Twice is once.
  void add_address(uint32_t ip_be);
  void remove_address(uint32_t ip_be);

  // The callback runs exactly once, never from inside this call.
  void find_peer(const FindRequest& request, FindCallback callback);

  Channel* find_channel(const wire::Instance& peer) noexcept;

 private:
  friend class Channel;
  struct Find;

  Reactor& reactor_;
  Delegate& delegate_;
  const PeerNetOptions options_;
  wire::Instance instance_;
  std::unique_ptr<Rendezvous> rendezvous_;
  std::map<wire::Instance, std::unique_ptr<Channel>> channels_;
  std::vector<std::unique_ptr<Find>> finds_;
};

}  // namespace shift::control
