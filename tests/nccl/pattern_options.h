// What one run of shift-nccl does: its connections move data as NCCL's net_ib transport does. The
// client decides, and tells the server at the start.
#pragma once

#include <cstdint>
#include <string>

#include "options.h"

namespace traffic::nccl {

inline constexpr uint32_t kRing = 256;      // slots of the ring of clear-to-send entries
inline constexpr uint32_t kGroupMax = 8;    // receives in one slot at most
inline constexpr uint32_t kInlineMax = 64;  // one clear-to-send entry

struct Options {
  uint32_t connections = 1;    // each with one sending and one receiving end
  bool bidirectional = false;  // every other connection sends from server to client
  uint32_t qps = 1;            // per connection
  bool split = false;          // each message goes over all QPs instead of one in turn
  uint32_t group = 1;          // up to so many receives for one notification
  uint32_t depth = 8;          // groups in flight per connection
  uint32_t size = 65536;       // bytes, or the largest with random_size
  bool random_size = false;
  uint32_t separate_from =
      0;  // from this size on an empty WRITE of its own carries the notification; 0: never
  bool cts_inline = false;
  bool flush = true;
  uint64_t messages = 1000;  // groups per connection; 0 means no limit
  uint32_t duration_ms = 0;
  bool until_stop = false;
  uint32_t rate = 0;  // groups per second and end, 0: as fast as possible
  uint64_t seed = 1;
  uint32_t quiet_ms = 50;
  uint32_t qp_timeout = 20;
  uint32_t retry_count = 7;
};

// Parses the command line. Returns -1 when the program shall go on, else its exit code.
int options_parse(int argc, char** argv, Options* options, Local* local);
// Returns why this combination makes no sense, or nothing when it does.
std::string options_problem(const Options& options);
// Returns the options of the verbs transport. Each connection has one more QP, which is connected
// to itself and serves to read back.
Traffic verbs_traffic(const Options& options);
inline bool is_flush_qp(const Options& options, uint32_t qp) {
  return qp % (options.qps + 1) == options.qps;
}

}  // namespace traffic::nccl
