// shift-nccl: a plain verbs program with the traffic of NCCL's net_ib transport. It judges the
// verbs library that it runs on, and knows nothing of SHIFT.
#include <cstdio>
#include <memory>

#include "engine.h"
#include "pattern_options.h"
#include "pattern_options_json.h"
#include "pattern_selftest.h"
#include "session.h"

namespace traffic::nccl {
namespace {

int run(Options options, const Local& local) {
  auto side = session_agree("shift-nccl", local, &options, options_problem);
  if (!side) return kExitUsage;
  Session session{
      .program = "shift-nccl", .verbs = verbs_traffic(options), .told = options, .local = local};
  session.is_loopback = [&](uint32_t qp) { return is_flush_qp(options, qp); };
  session.make = [&](Transport* transport, SideChannel* channel, Report* report) {
    return std::make_unique<Engine>(
        options, session.is_client(),
        EndTimes{.stall_ms = local.stall_ms, .does_outlive = local.does_outlive}, transport,
        channel, report);
  };
  return session_run(session, side.get());
}

}  // namespace
}  // namespace traffic::nccl

int main(int argc, char** argv) {
  traffic::nccl::Options options;
  traffic::Local local;
  if (int code = traffic::nccl::options_parse(argc, argv, &options, &local); code >= 0) return code;
  return local.selftest ? traffic::nccl::selftest() : traffic::nccl::run(options, local);
}
