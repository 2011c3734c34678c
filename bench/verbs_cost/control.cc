#include "control.h"

#include <time.h>

#include <cerrno>

namespace bench {
namespace {

double now_us() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

// Calls `call(i)`, which returns 0 or an errno value, for i = 0 .. count - 1.
template <typename Call>
ControlResult time_calls(const char* name, int count, Call call) {
  ControlResult result{name, {}};
  for (int i = 0; i < count; i++) {
    const double before = now_us();
    const int error = call(i);
    result.us.push_back(now_us() - before);
    if (error != 0) fail(name, error);
  }
  return result;
}

int or_errno(bool good) {
  return good ? 0 : errno;
}

void measure_regions(Device& device, int count, std::vector<ControlResult>* results) {
  struct Size {
    const char* reg;
    const char* dereg;
    size_t bytes;
  };
  for (const Size& size : {Size{"reg_mr 4 KiB", "dereg_mr 4 KiB", 4096},
                           Size{"reg_mr 1 MiB", "dereg_mr 1 MiB", 1 << 20}}) {
    std::vector<ibv_mr*> regions(count);
    results->push_back(time_calls(size.reg, count, [&](int i) {
      regions[i] = ibv_reg_mr(device.pd, device.memory.data(), size.bytes, IBV_ACCESS_LOCAL_WRITE);
      return or_errno(regions[i] != nullptr);
    }));
    results->push_back(
        time_calls(size.dereg, count, [&](int i) { return ibv_dereg_mr(regions[i]); }));
  }
}

void measure_queues(Device& device, int count, std::vector<ControlResult>* results) {
  const int pairs = (count + 1) / 2;
  std::vector<ibv_cq*> cqs(count);
  std::vector<ibv_qp*> qps(pairs * 2);
  results->push_back(time_calls("create_cq", count, [&](int i) {
    cqs[i] = ibv_create_cq(device.context, kDepth, nullptr, nullptr, 0);
    return or_errno(cqs[i] != nullptr);
  }));
  results->push_back(time_calls("create_qp", pairs * 2, [&](int i) {
    ibv_qp_init_attr init{};
    init.qp_type = IBV_QPT_RC;
    init.send_cq = init.recv_cq = cqs[0];
    init.cap = {.max_send_wr = 128,
                .max_recv_wr = 128,
                .max_send_sge = 1,
                .max_recv_sge = 1,
                .max_inline_data = kInlineMessage};
    qps[i] = ibv_create_qp(device.pd, &init);
    return or_errno(qps[i] != nullptr);
  }));
  results->push_back(
      time_calls("modify_qp INIT", pairs * 2, [&](int i) { return to_init(qps[i]); }));
  results->push_back(time_calls("modify_qp RTR", pairs * 2,
                                [&](int i) { return to_rtr(device, qps[i], qps[i ^ 1]->qp_num); }));
  results->push_back(time_calls("modify_qp RTS", pairs * 2, [&](int i) { return to_rts(qps[i]); }));
  results->push_back(
      time_calls("destroy_qp", pairs * 2, [&](int i) { return ibv_destroy_qp(qps[i]); }));
  results->push_back(
      time_calls("destroy_cq", count, [&](int i) { return ibv_destroy_cq(cqs[i]); }));
}

}  // namespace

std::vector<ControlResult> control_measure(Device& device, int count) {
  std::vector<ControlResult> results;
  measure_regions(device, count, &results);
  measure_queues(device, count, &results);
  return results;
}

}  // namespace bench
