// Finds the address that belongs to a GID which holds none. It asks all hosts in the subnet by UDP,
// much as ARP does. The address is a hint only: the process there has to prove what it owns.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "net/reactor.h"
#include "net/rendezvous.h"
#include "net/subnet.h"
#include "util/unique_fd.h"

namespace shift::net {

class GidResolver {
 public:
  // How long a question waits for its answer. All callers that ask for a GID share one question, so
  // the time also bounds how often a GID is asked for.
  static constexpr std::chrono::milliseconds kAnswerTimeout{250};

  // `port` is the one without a job key.
  GidResolver(Reactor& reactor, const Secrets& secrets, uint16_t port,
              std::chrono::milliseconds answer_timeout = kAnswerTimeout)
      : reactor_(reactor), secrets_(secrets), port_(port), answer_timeout_(answer_timeout) {}
  ~GidResolver();
  GidResolver(const GidResolver&) = delete;
  GidResolver& operator=(const GidResolver&) = delete;

  // The address that the last answer named.
  std::optional<uint32_t> known(uint32_t local_ip_be, const wire::Gid& gid) const;
  // Asks from the local address. The callback runs once, from the loop; known() then gives the
  // address, if a host has answered.
  void ask(uint32_t local_ip_be, const wire::Gid& gid, Rendezvous::AskCallback callback);
  // Forgets the known address. The next question prefers an answer that names another address, and
  // takes the forgotten one when no other comes.
  void doubt(uint32_t local_ip_be, const wire::Gid& gid);

 private:
  static constexpr size_t kKnownMax = 4096;
  static constexpr size_t kDoubtedMax = 16;  // addresses for one GID

  using Key = std::pair<uint32_t, wire::Gid>;

  struct Question {
    UniqueFd fd;
    Subnet subnet;
    uint64_t nonce = 0;
    Reactor::TimerId timer = 0;
    std::optional<uint32_t> doubted;  // the answer, if no better one comes
    std::vector<Rendezvous::AskCallback> waiting;
  };

  void send(const Key& key, Question& question);
  bool send_with(uint64_t job_key, const wire::Gid& gid, const Question& question);
  bool is_proved(const wire::GidAnswer& answer) const;
  void on_readable(const Key& key);
  // Whether the answer ends the question.
  bool take(const Key& key, Question& question, const wire::GidAnswer& answer, uint32_t from_be);
  void remember(const Key& key, uint32_t ip_be);
  void end(const Key& key);

  Reactor& reactor_;
  const Secrets& secrets_;
  const uint16_t port_;
  const std::chrono::milliseconds answer_timeout_;
  std::map<Key, Question> questions_;
  std::map<Key, uint32_t> known_;
  std::map<Key, std::set<uint32_t>> doubted_;
};

}  // namespace shift::net
