// Finds the addresses of a server by its name, without holding up the loop.
#pragma once

#include <sys/socket.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "net/reactor.h"

namespace shift::net {

struct ServerAddress {
  struct sockaddr_storage address = {};
  socklen_t size = 0;
};

// Only the loop uses it. The system's functions for names wait, so each question has a thread of
// its own, which ends with the answer.
class ServerLookup {
 public:
  // The addresses, IPv4 ones first; none: there is no answer.
  using Callback = std::function<void(std::vector<ServerAddress>)>;

  explicit ServerLookup(Reactor& reactor) : reactor_(reactor) {}
  ~ServerLookup() { cancel(); }
  ServerLookup(const ServerLookup&) = delete;
  ServerLookup& operator=(const ServerLookup&) = delete;

  // The callback runs once, never from inside this call. While an earlier question is under way,
  // its answer is taken for this one's, since it is about the same server.
  void start(const std::string& host, uint16_t port, Callback callback);
  // The callback does not run any more. A thread that waits for an answer ends by itself.
  void cancel();

 private:
  struct Job;
  static void* thread_main(void* job);

  Reactor& reactor_;
  std::shared_ptr<Job> job_;
};

}  // namespace shift::net
