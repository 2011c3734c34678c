// One end of a run of shift-traffic: all its flows, and the credits that let them go on.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "end.h"
#include "receive_queue.h"
#include "receiver.h"
#include "sender.h"

namespace traffic {

class Peer : public End {
 public:
  Peer(const Traffic& traffic, bool is_client, EndTimes times, Transport* transport,
       SideChannel* side, Report* report);

  uint64_t progress() const override;
  uint64_t bytes_completed() const override;

 private:
  struct Channel {  // one QP
    SendQueue* queue = nullptr;
    std::unique_ptr<Sender> sender;      // null when this end does not send
    std::unique_ptr<Receiver> receiver;  // null when this end does not receive
    ReceiveQueue* receives = nullptr;
    RemoteRegion remote_control;
    uint64_t granted_sent = 0;
    uint64_t fence_sent = 0;
    uint64_t credits_posted = 0;
    bool is_fin_sent = false;
  };

  void channels_make(bool is_client);
  void region_take(uint64_t flow, RemoteRegion target, RemoteRegion control) override;
  void line_take(std::string_view word, uint64_t flow, uint64_t value) override;
  bool traffic_advance() override;
  void senders_stop() override;
  bool is_complete() const override;
  void send_retired(uint32_t qp, const PostedSend& work) override;
  void receive_completed(uint32_t qp, const ibv_wc& wc) override;
  void idle_watch(uint64_t idle_ns) override;
  void memory_judge() override;
  std::string flows_text() const override;

  void receives_post();
  bool sends_post();
  bool batch_post(Channel& channel, uint32_t qp, uint32_t count);
  bool credits_give();
  void credit_post(Channel& channel, uint32_t qp, uint64_t granted);
  void credit_words_read();
  void fences_send();
  void completions_judge(uint64_t qp, uint64_t consumed_by_peer);

  const Traffic traffic_;
  std::vector<Channel> channels_;
  std::vector<std::unique_ptr<ReceiveQueue>> receive_queues_;
  Region control_;
  uint32_t next_qp_ = 0;  // QPs send in turns
  bool is_where_sent_ = false;
};

}  // namespace traffic
