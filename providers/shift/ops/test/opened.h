// An open device of two NICs over a fake stock library, which keeps count of the objects made on
// the NICs.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "group/shared_queue.h"
#include "group/test/fake.h"
#include "group/test/fake_nic.h"
#include "ops/entry.h"
#include "ops/tables.h"
#include "ops/test/runtime.h"

namespace shift::ops {

using group::FakeNic;
using group::kBackup;
using group::kDefault;

// A loop whose descriptors are never readable.
class QuietLoop final : public LazyLoop {
 public:
  bool add_fd(int, uint32_t, FdCallback) override { return true; }
  bool in_thread() const noexcept override { return is_own_thread; }
  bool is_own_thread = true;
};

class Opened : public ::testing::Test {
 protected:
  Opened() {
    in_use = &runtime_;
    coordinator_.network_set(std::make_unique<EmptyNetwork>());
    live.clear();
    refusals.clear();
    table_fill();
    before_ = std::exchange(stock, &table_);
    for (FakeNic* nic : {&first_, &second_}) {
      nic->gid = {};  // without an address the layer looks for no peers
      nic->verbs.context.async_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
      nic->verbs.query_device_ex = [](ibv_context*, const ibv_query_device_ex_input*,
                                      ibv_device_attr_ex* attr, size_t) {
        attr->orig_attr.max_cqe = 1000;
        attr->orig_attr.phys_port_cnt = 1;
        return refusal("query_device");
      };
      nic->verbs.query_port = [](ibv_context*, uint8_t, ibv_port_attr* attr, size_t) {
        attr->state = IBV_PORT_ACTIVE;
        attr->phys_state = 5;
        attr->max_msg_sz = 100;
        return refusal("query_port");
      };
    }
    ibv_device* real[] = {&first_.device, &second_.device};
    shown_ = device_list_wrap(real, 2);
    nics = {&first_, &second_};
  }
  ~Opened() override {
    if (context_ != nullptr) close();
    device_list_free(shown_);
    stock = before_;
    in_use = nullptr;
    for (FakeNic* nic : {&first_, &second_}) ::close(nic->verbs.context.async_fd);
  }
  void SetUp() override { open(); }
  void open() {
    context_ = open_device(shown_[0]);
    ASSERT_NE(context_, nullptr);
  }
  // What was left to be destroyed later is.
  void reap() {
    control_.run_timers();
    worker_.run();
  }
  void close() { EXPECT_EQ(close_device(std::exchange(context_, nullptr)), 0); }
  group::Context& context() { return *group::Context::from(context_); }

  // The error that a call of the stock library answers, by its name. A call that is not here
  // succeeds.
  static inline std::map<std::string, int> refusals;
  static int refusal(const std::string& call) {
    const auto found = refusals.find(call);
    if (found == refusals.end()) return 0;
    errno = found->second;
    return found->second;
  }
  // The objects of each kind that were made on the NICs and not yet destroyed.
  static inline std::map<std::string, std::set<const void*>> live;
  static size_t count(const char* kind) { return live[kind].size(); }
  template <typename Object>
  static Object* made(const char* kind, Object* object) {
    live[kind].insert(object);
    return object;
  }
  // What the function that destroys `object` returns.
  static int gone(const char* kind, const void* object) {
    if (const int error = refusal(kind)) return error;
    EXPECT_EQ(live[kind].erase(object), 1u) << kind;
    return 0;
  }
  static inline std::vector<FakeNic*> nics;

  FakeNic first_{"made_0", htonl(0x7f580001)}, second_{"made_1", htonl(0x7f580002)};
  QuietLoop control_, worker_;
  group::FakeCommands commands_{worker_};
  control::Coordinator coordinator_{control_, commands_};
  control::Runtime runtime_{control_, coordinator_};
  ibv_device** shown_ = nullptr;
  ibv_context* context_ = nullptr;
  StockVerbs table_ = *group::fake_stock();

 private:
  void table_fill() {
    table_.free_device_list = [](ibv_device**) {};
    table_.open_device = [](ibv_device* device) -> ibv_context* {
      for (FakeNic* nic : nics) {
        if (&nic->device == device && refusal(device->name) == 0)
          return made("context", nic->context());
      }
      return nullptr;
    };
    table_.close_device = [](ibv_context* c) { return gone("context", c); };
    table_.query_device = [](ibv_context*, ibv_device_attr* attr) {
      attr->max_cqe = 1000;
      return refusal("query_device");
    };
    table_.create_comp_channel = [](ibv_context* c) {
      auto* channel = new ibv_comp_channel{};
      channel->context = c;
      channel->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
      return made("channel", channel);
    };
    table_.destroy_comp_channel = [](ibv_comp_channel* channel) {
      if (const int error = gone("channel", channel)) return error;
      ::close(channel->fd);
      delete channel;
      return 0;
    };
    table_.get_cq_event = [](ibv_comp_channel*, ibv_cq**, void**) { return -1; };
    table_.ack_cq_events = [](ibv_cq*, unsigned) {};
    table_.alloc_pd = [](ibv_context* c) -> ibv_pd* {
      if (refusal("alloc_pd") != 0) return nullptr;
      auto* pd = new ibv_pd{};
      pd->context = c;
      return made("pd", pd);
    };
    table_.dealloc_pd = [](ibv_pd* pd) {
      if (const int error = gone("pd", pd)) return error;
      delete pd;
      return 0;
    };
    table_.create_srq = [](ibv_pd* pd, ibv_srq_init_attr*) -> ibv_srq* {
      if (refusal("create_srq") != 0) return nullptr;
      return made("srq", &FakeNic::of(pd->context).srq_make().srq);
    };
    table_.query_srq = [](ibv_srq*, ibv_srq_attr* attr) {
      attr->max_wr = 32;  // more than was asked for: NICs round up
      attr->max_sge = 3;
      return refusal("query_srq");
    };
    table_.destroy_srq = [](ibv_srq* srq) { return gone("srq", srq); };
    table_.resize_cq = [](ibv_cq* cq, int cqe) {
      if (const int error = refusal("resize_cq")) return error;
      cq->cqe = cqe;
      return 0;
    };
  }
  const StockVerbs* before_ = nullptr;
};

}  // namespace shift::ops
