// The command line of shift-nccl.
#include "pattern_options.h"

#include <CLI/CLI.hpp>

#include "local_options.h"
#include "report.h"

namespace traffic::nccl {

int options_parse(int argc, char** argv, Options* o, Local* local) {
  CLI::App app{
      "Moves data as NCCL's net_ib transport does and checks every byte, notification and "
      "completion.\n"
      "Without HOST this is the server. Exit: 0 right, 1 violation, 2 verbs error, 3 hang, 4 "
      "usage."};
  local_options_add(&app, local);
  run_options_add(&app, o);
  app.add_option("-c,--connections", o->connections,
                 "connections, each of one sender and receiver");
  app.add_flag("--bidirectional", o->bidirectional, "every other connection runs the other way");
  app.add_option("-q,--qps", o->qps, "queue pairs per connection");
  app.add_flag("--split", o->split, "send each message over all queue pairs");
  app.add_option("--group", o->group, "up to so many receives for one notification");
  app.add_option("--depth", o->depth, "groups in flight per connection");
  app.add_option("-s,--size", o->size, "bytes per message");
  app.add_flag("--random-size", o->random_size, "sizes up to --size");
  app.add_option("--separate-from", o->separate_from,
                 "from this size on, notify with an empty WRITE of its own (0: never)");
  app.add_flag("--cts-inline", o->cts_inline, "post clear-to-send entries inline");
  app.add_flag("--flush,!--no-flush", o->flush, "read back one byte before data is taken");
  app.add_option("-n,--messages", o->messages, "groups per connection");
  app.add_option("--rate", o->rate, "groups per second and end");
  if (int code = app_parse(&app, argc, argv); code >= 0) return code;
  return run_options_check("shift-nccl", o, options_problem);
}

std::string options_problem(const Options& o) {
  if (o.messages == 0 && o.duration_ms == 0 && !o.until_stop)
    return "--messages, --duration-ms or --until-stop must be given";
  if (o.qps < 1 || o.qps > 128) return "--qps must be between 1 and 128";
  if (o.connections < 1 || o.connections > 64) return "--connections must be between 1 and 64";
  if (o.group < 1 || o.group > kGroupMax) return "--group must be between 1 and 8";
  if (o.depth < 1 || o.depth > 32) return "--depth must be between 1 and 32";
  if (o.size > (16u << 20)) return "--size is too large";
  return {};
}

Traffic verbs_traffic(const Options& o) {
  Traffic traffic;
  traffic.qps = o.connections * (o.qps + 1);
  traffic.depth = 2 * kRing - 32;  // the transport adds room for credits to it
  traffic.one_cq = true;
  traffic.inline_max = kInlineMax;
  traffic.until_stop = o.until_stop;
  traffic.duration_ms = o.duration_ms;
  traffic.seed = o.seed;
  traffic.psn_zero = true;
  traffic.qp_timeout = o.qp_timeout;
  traffic.retry_count = o.retry_count;
  return traffic;
}

}  // namespace traffic::nccl
