// Connections whose Hello is for this process, until their other end has proved itself. Only the
// control loop uses it.
#pragma once

#include <list>
#include <memory>

#include "net/first_message.h"
#include "net/lobby.h"
#include "net/reactor.h"
#include "net/rendezvous.h"

namespace shift::net {

class Inbound {
 public:
  // All three outlive it.
  Inbound(Reactor& reactor, RendezvousHost& host, Lobby& lobby)
      : reactor_(reactor), host_(host), lobby_(lobby) {}
  Inbound(const Inbound&) = delete;
  Inbound& operator=(const Inbound&) = delete;

  // Answers the Hello. If the answer is yes, the connection is given to the host when the asker's
  // Confirm has come and proves what has to be proved; else it is closed.
  void take(UniqueFd fd, const wire::Hello& hello);

 private:
  struct Guest {
    wire::Hello hello;
    wire::HelloReply reply;
    PairKey pair_key;  // without job keys
    uint32_t local_ip_be = 0, remote_ip_be = 0;
    std::unique_ptr<FirstMessage> confirm;
    Lobby::Seat seat;
  };
  using Guests = std::list<Guest>;

  bool is_welcome(const wire::Hello& hello, uint32_t local_ip_be, uint32_t remote_ip_be);
  bool pair_key_find(Guest& guest) const;
  Signer signer(const Guest& guest) const;
  void on_confirm(Guests::iterator guest, UniqueFd fd, const wire::Message* message,
                  const char* why);

  Reactor& reactor_;
  RendezvousHost& host_;
  Lobby& lobby_;
  Guests guests_;
};

// Says no on a fresh connection. Only a process with the Hello's key, or one without keys where the
// Hello has none, may call it.
void hello_deny(int fd, const wire::Hello& hello, const Secrets& secrets);

}  // namespace shift::net
