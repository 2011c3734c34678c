// The dialing side of handshakes: connects, sends a Hello, and proves what the answer asks for.
#pragma once

#include <memory>
#include <vector>

#include "net/first_message.h"
#include "net/reactor.h"
#include "net/rendezvous.h"

namespace shift::net {

class TcpDial {
 public:
  // `host` outlives it.
  TcpDial(Reactor& reactor, RendezvousHost& host, Rendezvous::DialCallback callback)
      : reactor_(reactor), host_(host), callback_(std::move(callback)) {}
  ~TcpDial();
  TcpDial(const TcpDial&) = delete;
  TcpDial& operator=(const TcpDial&) = delete;

  // Tries the job key that the Hello names or, if it names none, one after the other of this
  // process's while nobody listens at their ports. The callback runs exactly once, from the
  // reactor's loop; it may destroy the TcpDial. `port` is the one without a key.
  void start(uint32_t local_ip_be, uint32_t remote_ip_be, uint16_t port, const wire::Hello& hello,
             std::chrono::milliseconds timeout);

 private:
  void attempt();
  bool sign();
  void on_connected();
  void on_reply(UniqueFd fd, const wire::Message* message, const char* why);
  DialError judge(const wire::HelloReply& reply);
  bool is_proved(const wire::HelloReply& reply);
  Signer signer() const;
  void fail_later(DialError error);
  void finish(DialError error, Joining joining = {});

  Reactor& reactor_;
  RendezvousHost& host_;
  Rendezvous::DialCallback callback_;
  UniqueFd fd_;
  wire::Hello hello_;
  PairKey pair_key_{};          // shared with who answers, without job keys
  std::vector<uint64_t> keys_;  // those that are left to try; the last one is next
  uint16_t port_ = 0;
  uint32_t local_ip_be_ = 0, remote_ip_be_ = 0;
  Reactor::Clock::time_point deadline_{};
  Reactor::TimerId timer_ = 0;
  std::unique_ptr<FirstMessage> reply_;
};

}  // namespace shift::net
