// One end of a run: drives all flows of one process as a state machine that never blocks.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "driven.h"
#include "farewell.h"
#include "receive_queue.h"
#include "receiver.h"
#include "report.h"
#include "send_queue.h"
#include "sender.h"
#include "transport.h"

namespace traffic {

struct PeerTimes {
  uint32_t stall_ms = 15000;  // without progress: give up
  uint32_t linger_ms = 300;   // after a finding: see its echo before the end
  bool does_outlive = false;  // wait for the error of every QP when the other process is gone
};

class Peer : public Driven {
 public:
  Peer(const Traffic& traffic, bool is_client, PeerTimes times, Transport* transport,
       SideChannel* side, Report* report);

  void stop() override;
  bool step() override;
  bool is_done() const override { return phase_ == Phase::kDone; }
  bool is_stalled() const override;
  int exit_code() const override;
  bool is_passive() const override { return is_passive_; }
  uint64_t idle_until_ns() const override;
  uint64_t progress() const override;
  uint64_t bytes_completed() const override;
  bool is_everything_flushed() const override;
  uint64_t longest_gap_ns() const override { return longest_gap_ns_; }
  std::string state_text() const override;

 private:
  enum class Phase { kHandshake, kRunning, kQuiet, kFinal, kFailing, kOrphaned, kDone };
  struct Channel {  // one QP
    std::unique_ptr<SendQueue> queue;
    std::unique_ptr<Sender> sender;      // null when this end does not send
    std::unique_ptr<Receiver> receiver;  // null when this end does not receive
    ReceiveQueue* receives = nullptr;
    RemoteRegion remote_control;
    uint64_t granted_sent = 0;
    uint64_t fence_sent = 0;
    uint64_t credits_posted = 0;
    bool is_fin_sent = false;
  };

  void channels_make();
  void handshake_send();
  bool lines_handle();
  void line_handle(const std::string& line);
  void line_of_flow(const std::string& word, Channel& channel, uint64_t value);
  bool completions_handle();
  void completion_handle(const ibv_wc& wc);
  void receive_completion(Channel& channel, const ibv_wc& wc);
  bool sends_post();
  bool batch_post(Channel& channel, uint32_t qp, uint32_t count);
  bool credits_give();
  void credit_post(Channel& channel, uint32_t qp, uint64_t granted);
  void credit_words_read();
  void fences_send();
  void phase_advance();
  void stall_check();
  void stall_judge(uint32_t qp, uint64_t consumed_by_peer);
  void senders_stop();
  bool is_owed_completions() const;  // of signaled requests
  void finish();
  void fail();
  void orphan();

  const Traffic traffic_;
  const bool is_client_;
  const uint64_t stall_ns_;
  const uint64_t linger_ns_;
  const bool does_outlive_;
  Transport* const transport_;
  SideChannel* const side_;
  Report* const report_;
  bool is_passive_ = false;

  Phase phase_ = Phase::kHandshake;
  std::vector<Channel> channels_;
  std::vector<std::unique_ptr<ReceiveQueue>> receive_queues_;
  std::unordered_map<uint32_t, uint32_t> qp_of_number_;
  Region control_;
  std::vector<PostedSend> retired_;
  Farewell farewell_;
  uint32_t handshakes_ = 0;
  uint32_t next_qp_ = 0;  // round robin of sending
  bool is_ready_ = false, is_done_sent_ = false, is_peer_done_ = false, is_peer_final_ = false;
  bool is_where_sent_ = false;
  bool is_stopping_ = false;
  int peer_abort_code_ = 0;
  uint64_t started_ns_ = 0, next_send_ns_ = 0, quiet_until_ns_ = 0, fail_until_ns_ = 0;
  uint64_t last_progress_ns_ = 0, last_progress_ = 0, longest_gap_ns_ = 0;
};

}  // namespace traffic
