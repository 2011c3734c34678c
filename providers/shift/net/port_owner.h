// The port owner of an address. It takes connections, finds out for which process of the host each
// connection is, and passes the connection on to that process.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <set>

#include "net/handshake.h"
#include "net/local_packet.h"
#include "net/reactor.h"
#include "net/rendezvous.h"
#include "util/unique_fd.h"

namespace shift::net {

class PortOwner {
 public:
  // Connections that have not found their process yet. When there are as many that have not said
  // their Hello, the oldest of the address that has most of them gives way: an honest Hello comes
  // within a round trip, however many strangers are silent.
  static constexpr size_t kPendingMax = 64;

  // `local` is the local socket whose name makes this process the owner.
  PortOwner(Reactor& reactor, RendezvousHost& host, uint32_t ip_be, uint16_t port, UniqueFd local)
      : reactor_(reactor), host_(host), ip_be_(ip_be), port_(port), local_(std::move(local)) {}
  ~PortOwner();
  PortOwner(const PortOwner&) = delete;
  PortOwner& operator=(const PortOwner&) = delete;

  [[nodiscard]] bool start();

 private:
  struct Sharer {
    UniqueFd fd;
    wire::Instance instance;  // zero until it has registered
  };
  // A connection whose Hello has come, and about which the sharers are being asked.
  struct Question {
    UniqueFd fd;
    wire::Hello hello;
    std::set<int> open;  // descriptors of sharers that have not answered
    Reactor::TimerId timer = 0;
  };

  struct Greeting {
    uint32_t remote_ip_be;
    std::unique_ptr<FirstMessage> first;
  };

  void listen();
  void accept_tcp();
  void make_room();
  void accept_pause(bool pause);
  void accept_local();
  bool is_full() const { return questions_.size() >= kPendingMax; }
  void on_hello(UniqueFd fd, const wire::Message* message, const char* why, uint32_t remote_ip_be);
  void find_process(UniqueFd fd, const wire::Hello& hello);
  void ask_sharers(UniqueFd fd, const wire::Hello& hello);
  void pass(Sharer& sharer, UniqueFd fd, const wire::Hello& hello);
  void on_member(int fd);
  bool sharer_receive(Sharer& sharer);
  void member_drop(int fd);
  void on_answer(int sharer_fd, uint32_t id, bool yes);
  void question_deny(uint32_t id);

  Reactor& reactor_;
  RendezvousHost& host_;
  const uint32_t ip_be_;
  const uint16_t port_;
  UniqueFd local_;
  UniqueFd tcp_;
  bool accepting_ = false;
  int listen_failures_ = 0;
  Reactor::TimerId listen_retry_ = 0;
  Reactor::TimerId accept_retry_ = 0;
  Reactor::TimerId local_retry_ = 0;  // runs while no further sharer is accepted
  std::list<Greeting> greeting_;      // the newest first
  std::map<int, Sharer> sharers_;     // by descriptor
  std::map<uint32_t, Question> questions_;
  uint32_t next_question_ = 1;
};

}  // namespace shift::net
