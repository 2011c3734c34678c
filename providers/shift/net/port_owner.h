// The port owner of an address. It takes connections, finds out for which process of the host each
// connection is, and passes the connection on to that process.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <set>

#include "net/first_message.h"
#include "net/inbound.h"
#include "net/lobby.h"
#include "net/local_packet.h"
#include "net/reactor.h"
#include "net/rendezvous.h"
#include "util/unique_fd.h"

namespace shift::net {

class PortOwner {
 public:
  // What the port owners of a process share. Connections that have not found their process yet have
  // a place in `lobby`, and local sockets that have not registered in `local_lobby`.
  struct Rooms {
    Lobby& lobby;
    Lobby& local_lobby;
    Inbound& inbound;
  };

  // `local` is the local socket whose name makes this process the owner; `port` is the TCP port,
  // and `key` the id of the job key that sharers must know, 0 without one.
  PortOwner(Reactor& reactor, RendezvousHost& host, const Rooms& rooms, uint32_t ip_be,
            uint16_t port, uint64_t key, UniqueFd local)
      : reactor_(reactor),
        host_(host),
        rooms_(rooms),
        ip_be_(ip_be),
        port_(port),
        key_(key),
        local_(std::move(local)) {}
  ~PortOwner();
  PortOwner(const PortOwner&) = delete;
  PortOwner& operator=(const PortOwner&) = delete;

  [[nodiscard]] bool start();

 private:
  struct Sharer {
    UniqueFd fd;
    wire::Instance instance;  // zero until it has registered
    wire::Nonce challenge;
    Lobby::Seat seat;  // until it has registered
    Reactor::TimerId timer = 0;
  };
  // A connection whose Hello has come, and about which the sharers are being asked.
  struct Question {
    UniqueFd fd;
    wire::Hello hello;
    std::set<int> open;  // descriptors of sharers that have not answered
    Reactor::TimerId timer = 0;
    Lobby::Seat seat;
  };

  struct Greeting {
    std::unique_ptr<FirstMessage> first;
    Lobby::Seat seat;
  };

  void listen();
  void accept_tcp();
  void accept_pause(bool pause);
  void accept_local();
  void on_hello(UniqueFd fd, const wire::Message* message, const char* why, uint32_t remote_ip_be);
  void find_process(UniqueFd fd, const wire::Hello& hello, uint32_t remote_ip_be);
  void ask_sharers(UniqueFd fd, const wire::Hello& hello, uint32_t remote_ip_be);
  void pass(Sharer& sharer, UniqueFd fd, const wire::Hello& hello);
  void on_member(int fd);
  bool sharer_receive(Sharer& sharer);
  bool sharer_register(Sharer& sharer, const wire::Hello& hello);
  void member_drop(int fd);
  void on_answer(int sharer_fd, uint32_t id, bool yes);
  void question_deny(uint32_t id);

  Reactor& reactor_;
  RendezvousHost& host_;
  const Rooms rooms_;
  const uint32_t ip_be_;
  const uint16_t port_;
  const uint64_t key_;
  UniqueFd local_;
  UniqueFd tcp_;
  bool accepting_ = false;
  int listen_failures_ = 0;
  Reactor::TimerId listen_retry_ = 0;
  Reactor::TimerId accept_retry_ = 0;
  Reactor::TimerId local_retry_ = 0;  // runs while no further sharer is accepted
  std::list<Greeting> greeting_;
  std::map<int, Sharer> sharers_;  // by descriptor
  std::map<uint32_t, Question> questions_;
  uint32_t next_question_ = 1;
};

}  // namespace shift::net
