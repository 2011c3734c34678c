// For tests in which a thread of the program builds a batch on the hot path (ibv_wr_start).
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <latch>
#include <thread>
#include <utility>

#include "group/group.h"

namespace shift::group {

class OpenBatch {
 public:
  // When it returns, the thread has run `before` and has begun its batch.
  explicit OpenBatch(Group& group, std::function<void()> before = {}) {
    thread_ = std::thread([this, &group, before = std::move(before)] {
      if (before) before();
      {
        std::lock_guard lock(group.send.mutex);
        group.send.adopt();
      }
      is_hot = group.send.bias.enter_building(tls_slot, &group.send);
      begun_.count_down();
      end_.wait();
      if (last_) last_();
      Bias::leave_building(tls_slot);
    });
    begun_.wait();
  }
  ~OpenBatch() {
    if (thread_.joinable()) end();
  }
  // The thread runs `last` and ends its batch.
  void end(std::function<void()> last = {}) {
    last_ = std::move(last);
    end_.count_down();
    thread_.join();
  }
  // Whether the call returns while the batch is open. A call that waits for the batch would never
  // return; the bound is far beyond what a busy machine takes.
  bool lets_return(const std::function<void()>& call) {
    std::promise<void> returned;
    std::thread caller([&] {
      call();
      returned.set_value();
    });
    const bool is_free =
        returned.get_future().wait_for(std::chrono::minutes(1)) == std::future_status::ready;
    if (!is_free) end();
    caller.join();
    return is_free;
  }

  bool is_hot = false;  // false: this system has no hot path

 private:
  std::latch begun_{1}, end_{1};
  std::function<void()> last_;
  std::thread thread_;
};

}  // namespace shift::group
