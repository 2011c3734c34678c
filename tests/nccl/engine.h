// One end of a run of shift-nccl: all its connections.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "end.h"
#include "pattern_options.h"
#include "recv_comm.h"
#include "send_comm.h"

namespace traffic::nccl {

class Engine : public End {
 public:
  Engine(const Options& options, bool is_client, EndTimes times, Transport* transport,
         SideChannel* side, Report* report);

  uint64_t progress() const override;
  uint64_t bytes_completed() const override;

 private:
  struct Connection {
    std::unique_ptr<SendComm> send;  // a connection has one of the two
    std::unique_ptr<RecvComm> recv;
    bool is_fin_sent = false;
  };

  void connection_make(uint32_t index, bool is_client);
  void region_take(uint64_t index, RemoteRegion first, RemoteRegion second) override;
  void line_take(std::string_view word, uint64_t index, uint64_t value) override;
  bool traffic_advance() override;
  void senders_stop() override;
  bool is_complete() const override;
  void send_retired(uint32_t qp, const PostedSend& work) override;
  void receive_completed(uint32_t qp, const ibv_wc& wc) override;
  uint32_t poll_max() const override { return 4; }  // as many as NCCL polls
  void memory_judge() override;
  std::string flows_text() const override;

  bool grants_give();
  bool groups_send();
  void fins_send();

  const Options options_;
  std::vector<Connection> connections_;
  uint32_t next_connection_ = 0;  // connections send in turns
};

}  // namespace traffic::nccl
