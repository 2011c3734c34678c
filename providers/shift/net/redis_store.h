// The redis rendezvous: at which IPv4 addresses can processes of the host be reached that has a
// GID? Hosts write it into a redis server for their own GIDs, and ask for those of others. What is
// answered is a hint and no more: the processes that are met there prove themselves as everywhere.
//
// A host's addresses are one line of text (net/host_entry.h), a member of the sorted set that is
// kept under the GID's key, whose score is the server's time of its last refreshment. So all
// processes of a host write the same member, while hosts or containers that share a GID but not
// their addresses stand beside each other, and no host's clock is believed.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "net/find_request.h"
#include "net/reactor.h"
#include "net/redis_session.h"
#include "net/server_lookup.h"
#include "net/timer.h"
#include "util/rendezvous_setting.h"
#include "wire/names.h"

namespace shift::net {

struct RedisOptions {
  std::chrono::milliseconds ask{500};        // how long an answer may take
  std::chrono::milliseconds patience{3000};  // how long the server may be silent
  // The pauses between two attempts to connect grow between these.
  std::chrono::milliseconds retry_min{100}, retry_max{10000};
  // A connection that lasted so long ends without a long pause before the next one.
  std::chrono::milliseconds stable{10000};
  std::chrono::seconds expiry{180};  // how long a host's line is kept without a refreshment
  std::chrono::milliseconds refresh{60000};
  std::string tls_plugin;  // the absolute name; empty: it lies beside the layer
};

// It may be made before the reactor has started; everything else happens on the reactor's thread.
class RedisStore {
 public:
  static constexpr size_t kGidsMax = 1024;   // that are announced
  static constexpr size_t kAsksMax = 16384;  // that wait for an answer at one time

  using Outcome = Stored;
  // The addresses of the latest writer come first. It must not destroy the store.
  using Answer = std::function<void(std::vector<uint32_t> ips_be, Outcome outcome)>;
  // local_address() is another one now.
  using AddressChanged = std::function<void()>;

  RedisStore(Reactor& reactor, RedisServer server, AddressChanged address_changed = {},
             RedisOptions options = {});
  ~RedisStore();
  RedisStore(const RedisStore&) = delete;
  RedisStore& operator=(const RedisStore&) = delete;

  // From now on the store shall say that processes of this host can be reached at these addresses
  // (network byte order) by these GIDs, in place of what an earlier call said. Addresses that no
  // other host can use are left out.
  void announce(std::vector<wire::Gid> gids, std::vector<uint32_t> ips_be);
  // The answer comes once, never from inside this call, and within RedisOptions::ask; while the
  // server is known to be away, at once. None comes when the store is destroyed before.
  void ask(const wire::Gid& gid, Answer answer);
  // The IPv4 address from which this process's connection to the server goes, in network byte
  // order. It is kept while the server is away; 0: it was never there, or is reached by IPv6.
  uint32_t local_address() const { return local_ip_be_; }
  // Why the server cannot be used; empty while it can, or before that is known.
  const std::string& problem() const { return last_why_; }

 private:
  struct Ask {
    wire::Gid gid;
    Answer answer;  // empty: it has been answered
    Reactor::Clock::time_point until;
  };

  // The connection: redis_store_connect.cc.
  void connect();
  void try_next();
  void fail(const std::string& why);
  void ask_time();
  void on_time(const RedisReply& reply);
  void on_ready();

  // What this host announces.
  bool on_loopback() const;
  void write(int64_t now_s);
  void call_write(std::initializer_list<std::string_view> words);

  // What is asked.
  void send(const std::shared_ptr<Ask>& ask);
  void on_entries(Ask& ask, const RedisReply& reply);
  void finish(Ask& ask, std::vector<uint32_t> ips_be, Outcome outcome);
  void finish_late();
  void finish_all();

  Reactor& reactor_;
  const RedisServer server_;
  const std::string name_;  // for log lines
  const AddressChanged address_changed_;
  const RedisOptions options_;

  // The connection.
  ServerLookup lookup_{reactor_};
  Timer retry_{reactor_};
  std::vector<ServerAddress> addresses_;  // that are left to try in this attempt; the last is next
  std::unique_ptr<RedisSession> session_;
  bool is_ready_ = false;  // the server has answered
  bool is_away_ = false;   // the last attempt failed
  Reactor::Clock::time_point ready_since_{};
  std::chrono::milliseconds pause_;
  std::string last_why_;  // what was logged since the server was last there
  uint32_t local_ip_be_ = 0;

  std::vector<wire::Gid> gids_;
  std::vector<uint32_t> ips_be_;
  std::map<std::string, std::string> written_;  // the lines by their keys, as last sent
  Timer refresh_{reactor_};

  // All that wait, the oldest first, and some that have been answered.
  std::deque<std::shared_ptr<Ask>> asks_;
  size_t asks_open_ = 0;
  Timer late_{reactor_};
};

}  // namespace shift::net
