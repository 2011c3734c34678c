// shift-traffic: a plain verbs program that judges the verbs library that it runs on. It knows
// nothing of SHIFT.
#include <cstdio>
#include <memory>

#include "options.h"
#include "options_json.h"
#include "peer.h"
#include "selftest.h"
#include "session.h"

namespace traffic {
namespace {

int run(Traffic traffic, const Local& local) {
  auto side = session_agree("shift-traffic", local, &traffic, traffic_problem);
  if (!side) return kExitUsage;
  Session session{.program = "shift-traffic", .verbs = traffic, .told = traffic, .local = local};
  session.make = [&](Transport* transport, SideChannel* channel, Report* report) {
    return std::make_unique<Peer>(
        traffic, session.is_client(),
        EndTimes{.stall_ms = local.stall_ms, .does_outlive = local.does_outlive}, transport,
        channel, report);
  };
  return session_run(session, side.get());
}

}  // namespace
}  // namespace traffic

int main(int argc, char** argv) {
  traffic::Traffic traffic;
  traffic::Local local;
  if (int code = traffic::options_parse(argc, argv, &traffic, &local); code >= 0) return code;
  return local.selftest ? traffic::selftest() : traffic::run(traffic, local);
}
