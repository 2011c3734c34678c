// One end of a run of shift-nccl: all its connections and the talk with the other end.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "driven.h"
#include "farewell.h"
#include "pattern_options.h"
#include "recv_comm.h"
#include "report.h"
#include "send_comm.h"
#include "send_queue.h"

namespace traffic::nccl {

struct Times {
  uint32_t stall_ms = 15000;  // without progress: give up
  uint32_t linger_ms = 300;   // after a finding: see its echo before the end
  bool does_outlive = false;  // wait for the error of every QP when the other process is gone
};

class Engine : public Driven {
 public:
  Engine(const Options& options, bool is_client, Times times, Transport* transport,
         SideChannel* side, Report* report);

  void stop() override;
  bool step() override;
  bool is_done() const override { return phase_ == Phase::kDone; }
  bool is_stalled() const override;
  int exit_code() const override;
  uint64_t idle_until_ns() const override { return 0; }
  uint64_t progress() const override;
  uint64_t bytes_completed() const override;
  bool is_everything_flushed() const override;
  uint64_t longest_gap_ns() const override { return longest_gap_ns_; }
  std::string state_text() const override;

 private:
  enum class Phase { kHandshake, kRunning, kQuiet, kFinal, kFailing, kOrphaned, kDone };
  struct Connection {
    std::vector<std::unique_ptr<SendQueue>> queues;  // the one for flushes last
    std::unique_ptr<SendComm> send;                  // one of the two
    std::unique_ptr<RecvComm> recv;
    bool is_fin_sent = false;
  };

  void connection_make(uint32_t index);
  void handshake_send();
  bool lines_handle();
  void line_handle(const std::string& line);
  bool completions_handle();
  void completion_handle(const ibv_wc& wc);
  void send_completion(Connection& connection, uint32_t qp, const ibv_wc& wc);
  bool traffic_advance();
  void phase_advance();
  void running_advance(uint64_t now);
  void progress_watch();
  void finish();
  void fail();
  void orphan();

  const Options options_;
  const bool is_client_;
  const Times times_;
  Transport* const transport_;
  SideChannel* const side_;
  Report* const report_;
  Phase phase_ = Phase::kHandshake;
  std::vector<Connection> connections_;
  std::unordered_map<uint32_t, uint32_t> qp_of_number_;
  std::vector<PostedSend> retired_;
  Farewell farewell_;
  uint32_t handshakes_ = 0;
  bool is_ready_ = false, is_done_sent_ = false, is_peer_done_ = false, is_peer_final_ = false;
  bool is_stopping_ = false;
  int peer_abort_code_ = 0;
  uint32_t next_connection_ = 0;  // round robin of sending
  uint64_t started_ns_ = 0, next_send_ns_ = 0, quiet_until_ns_ = 0, fail_until_ns_ = 0;
  uint64_t last_progress_ns_ = 0, last_progress_ = 0, longest_gap_ns_ = 0;
};

}  // namespace traffic::nccl
