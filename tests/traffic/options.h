// What one run of shift-traffic does. The client decides the traffic and sends it to the server at
// the start, so that the two ends can never expect different things.
#pragma once

#include <cstdint>
#include <string>

namespace traffic {

enum class Op { kWrite, kWriteImm, kSend, kSendImm, kRead, kAtomic, kMixed };
enum class Api { kClassic, kWr };
enum class Cqs { kClassic, kExtended, kStamped };
enum class Credits { kTcp, kVerbs };

// These options are equal at both ends.
struct Traffic {
  Op op = Op::kMixed;
  uint64_t messages = 1000;  // per QP and direction; 0 means no limit
  uint32_t duration_ms = 0;
  bool until_stop = false;  // until the client reads a line or the end of its standard input
  uint32_t size = 4096;     // bytes, or the largest with random_size
  bool random_size = false;
  uint32_t qps = 1;
  uint32_t depth = 32;        // messages in flight per QP and direction
  uint32_t signal_every = 1;  // one signaled WR in so many
  uint32_t inline_max = 0;    // messages up to this size are posted inline
  uint32_t batch = 1;         // WRs per post call
  uint32_t sges = 1;
  uint32_t rate = 0;  // messages per second and direction, 0: as fast as possible
  bool events = false;
  bool bidirectional = false;
  bool receiver_rtr = false;  // the server never leaves RTR
  bool sig_all = false;       // sq_sig_all instead of the per-WR flag
  bool srq = false;
  bool one_cq = false;    // sends and receives share one CQ
  bool short_cq = false;  // the CQ of the sends has room for the completions of signaled ones only
  Api api = Api::kClassic;
  Cqs cqs = Cqs::kClassic;
  Credits credits = Credits::kTcp;
  uint64_t seed = 1;
  uint32_t quiet_ms = 50;  // how long both ends watch for ghost writes at the end
  uint32_t rnr_retry = 7;
  uint32_t qp_timeout = 14;
  uint32_t retry_count = 7;
  bool psn_zero = false;  // all start PSNs 0, as with NCCL; the server is not told
};

// These options concern this process only.
struct Local {
  std::string server;  // empty: this is the server
  std::string listen = "127.0.0.1";
  uint16_t port = 0;
  std::string device;
  int gid_index = 3;
  uint32_t timeout_ms = 60000;  // for the whole run
  uint32_t stall_ms = 15000;    // without any progress
  std::string json_path;
  std::string timeline_path;
  bool selftest = false;
  bool does_outlive = false;  // if the other process is gone, go on until all QPs fail
};

// Parses the command line. Returns -1 when the program shall go on, else its exit code.
int options_parse(int argc, char** argv, Traffic* traffic, Local* local);

// Returns why this combination makes no sense, or nothing when it does.
std::string traffic_problem(const Traffic& traffic);

}  // namespace traffic
