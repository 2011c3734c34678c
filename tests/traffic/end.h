// One end of a run, from the handshake to the verdict: a state machine that never blocks. It has
// the phases that every traffic program goes through; a derived class says what the traffic is.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "farewell.h"
#include "pace.h"
#include "pauses.h"
#include "report.h"
#include "send_queue.h"
#include "transport.h"

namespace traffic {

struct EndTimes {
  uint32_t stall_ms = 15000;  // so long without progress ends the run
  uint32_t linger_ms = 300;   // so long a run goes on after a finding
  bool does_outlive = false;  // if the other process is gone, go on until all QPs fail
};

// The options of the traffic that the phases depend on.
struct EndPlan {
  uint32_t duration_ms;  // 0: no limit of time
  uint32_t quiet_ms;     // how long the end watches for ghost writes
  uint32_t rate;         // messages per second, 0: as fast as possible
};

class End {
 public:
  End(EndPlan plan, EndTimes times, Transport* transport, SideChannel* side, Report* report);
  virtual ~End() = default;

  // `inspect` is called once, when all memory checks are done and both ends still have their QPs.
  void on_inspect(std::function<void()> inspect) { inspect_ = std::move(inspect); }
  // Neither end begins new messages; the last checks follow when those under way have ended.
  void stop();
  // Does a bounded amount of work. Returns whether anything happened.
  bool step();
  bool is_done() const { return phase_ == Phase::kDone; }
  bool is_stalled() const;
  int exit_code() const;
  // A passive end gets no completions, so it needs to watch the side channel only.
  bool is_passive() const { return is_passive_ && phase_ != Phase::kOrphaned; }
  // Before this time nothing happens unless the other end or the NIC does something; 0 is unknown.
  uint64_t idle_until_ns() const;
  const Pauses& pauses() const { return pauses_; }
  bool is_everything_flushed() const;
  std::string state_text() const;

  virtual uint64_t progress() const = 0;  // messages completed here plus consumed here
  virtual uint64_t bytes_completed() const = 0;

 protected:
  // ---- for the constructor of a derived class

  // Adds the next QP of the transport. A loopback QP has no other end that could be gone.
  SendQueue* queue_add(uint32_t capacity, bool is_loopback = false);
  // Sends the two regions that the other end may access for the next flow. The other end sends
  // as many regions.
  void region_tell(const Region& first, const Region& second);
  void handshake_end();

  // ---- what a derived class does

  virtual void region_take(uint64_t flow, RemoteRegion first, RemoteRegion second) = 0;
  // Takes a line that belongs to the traffic and not to the phases.
  virtual void line_take(std::string_view word, uint64_t flow, uint64_t value) = 0;
  // Posts what can be posted while the traffic runs. Returns whether anything was posted.
  virtual bool traffic_advance() = 0;
  virtual void senders_stop() = 0;
  // Whether this end has sent and consumed everything and has told the other end about it.
  virtual bool is_complete() const = 0;
  virtual void send_retired(uint32_t qp, const PostedSend& work) = 0;
  // Takes a successful receive completion.
  virtual void receive_completed(uint32_t qp, const ibv_wc& wc) = 0;
  static constexpr uint32_t kPollMax = 32;
  virtual uint32_t poll_max() const { return kPollMax; }
  // Is called in each step while messages run, with the time since the last progress.
  virtual void idle_watch(uint64_t idle_ns);
  // Judges the memory when the run is over and quiet: nothing may be missing or overwritten.
  virtual void memory_judge() = 0;
  virtual std::string flows_text() const = 0;

  uint64_t stall_ns() const { return uint64_t{times_.stall_ms} * 1'000'000; }

  Transport* const transport_;
  SideChannel* const side_;
  Report* const report_;
  Pace pace_;
  bool is_passive_ = false;

 private:
  // kHandshake: the ends tell each other their regions. kRunning: messages run. kQuiet: both ends
  // have consumed everything, and nothing may happen any more. kFinal: this end has judged, the
  // other end still judges. kFailing: something is wrong, and the end waits for more findings.
  // kOrphaned: the other process is gone.
  enum class Phase { kHandshake, kRunning, kQuiet, kFinal, kFailing, kOrphaned, kDone };

  bool lines_take();
  void line_handle(const std::string& line);
  void peer_gone();
  bool completions_take();
  void completion_handle(const ibv_wc& wc);
  void phase_advance();
  void running_advance(uint64_t now);
  void quiet_advance(uint64_t now);
  void progress_watch();
  void finish();
  void fail();
  bool is_owed_completions() const;  // whether a signaled request is not completed

  const EndPlan plan_;
  const EndTimes times_;
  std::function<void()> inspect_;
  Phase phase_ = Phase::kHandshake;
  std::vector<std::unique_ptr<SendQueue>> queues_;
  std::unordered_map<uint32_t, uint32_t> qp_of_number_;
  std::vector<PostedSend> retired_;
  Farewell farewell_;
  uint32_t regions_told_ = 0, regions_taken_ = 0;
  bool is_peer_ready_ = false, is_done_sent_ = false, is_peer_done_ = false, is_peer_final_ = false;
  bool is_stopping_ = false;
  int peer_abort_code_ = 0;
  uint64_t started_ns_ = 0, quiet_until_ns_ = 0, fail_until_ns_ = 0;
  uint64_t last_progress_ns_ = 0, last_progress_ = 0;
  Pauses pauses_;
};

}  // namespace traffic
