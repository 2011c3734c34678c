// The command line of shift-traffic.
#include "options.h"

#include <CLI/CLI.hpp>
#include <map>

#include "local_options.h"
#include "report.h"

namespace traffic {

int options_parse(int argc, char** argv, Traffic* t, Local* local) {
  CLI::App app{
      "Sends keyed traffic over RC queue pairs and checks every byte, notification and "
      "completion.\n"
      "Without HOST this is the server. Exit: 0 right, 1 violation, 2 verbs error, 3 hang, 4 "
      "usage."};
  const std::map<std::string, Op> ops{{"write", Op::kWrite}, {"write_imm", Op::kWriteImm},
                                      {"send", Op::kSend},   {"send_imm", Op::kSendImm},
                                      {"read", Op::kRead},   {"atomic", Op::kAtomic},
                                      {"mixed", Op::kMixed}};
  const std::map<std::string, Api> apis{{"classic", Api::kClassic}, {"wr", Api::kWr}};
  const std::map<std::string, Cqs> cqs{
      {"classic", Cqs::kClassic}, {"extended", Cqs::kExtended}, {"stamped", Cqs::kStamped}};
  const std::map<std::string, Credits> credits{{"tcp", Credits::kTcp}, {"verbs", Credits::kVerbs}};
  local_options_add(&app, local);
  run_options_add(&app, t);
  app.add_option("--op", t->op)->transform(CLI::CheckedTransformer(ops));
  app.add_option("-n,--messages", t->messages, "messages per QP and direction");
  app.add_option("-s,--size", t->size, "bytes per message");
  app.add_flag("--random-size", t->random_size, "sizes up to --size");
  app.add_option("-q,--qps", t->qps, "queue pairs");
  app.add_option("--depth", t->depth, "messages in flight per QP");
  app.add_option("--signal-every", t->signal_every, "one signaled WR in so many");
  app.add_option("--inline", t->inline_max, "post messages up to this size inline");
  app.add_option("--batch", t->batch, "WRs per post call");
  app.add_option("--sges", t->sges, "scatter/gather entries per WR");
  app.add_option("--rate", t->rate, "messages per second and direction");
  app.add_flag("--events", t->events, "sleep on the completion channel instead of polling");
  app.add_flag("--bidirectional", t->bidirectional, "both ends send");
  app.add_flag("--receiver-rtr", t->receiver_rtr, "the server's QPs stay in RTR");
  app.add_flag("--sig-all", t->sig_all, "sq_sig_all");
  app.add_flag("--srq", t->srq, "receive from one shared receive queue");
  app.add_flag("--one-cq", t->one_cq, "one CQ for sends and receives");
  app.add_flag("--short-cq", t->short_cq, "the CQ of the sends has room for signaled ones only");
  app.add_option("--api", t->api, "ibv_post_send or ibv_wr_*")
      ->transform(CLI::CheckedTransformer(apis));
  app.add_option("--cqs", t->cqs, "ibv_poll_cq, ibv_start_poll, or the latter with timestamps")
      ->transform(CLI::CheckedTransformer(cqs));
  app.add_option("--credits", t->credits, "how receivers hand slots back")
      ->transform(CLI::CheckedTransformer(credits));
  app.add_option("--rnr-retry", t->rnr_retry);
  if (int code = app_parse(&app, argc, argv); code >= 0) return code;
  if (t->sig_all) t->signal_every = 1;
  return run_options_check("shift-traffic", t, traffic_problem);
}

std::string traffic_problem(const Traffic& t) {
  if (t.messages == 0 && t.duration_ms == 0 && !t.until_stop)
    return "--messages, --duration-ms or --until-stop must be given";
  if (t.messages > 0xffffffffu) return "--messages must fit in an immediate";
  if (t.depth < 2) return "--depth must be at least 2";
  // When a sender waits for credit, one of its WRs in flight must be signaled.
  if (t.signal_every < 1 || t.signal_every > t.depth / 2)
    return "--signal-every must be between 1 and half of --depth";
  if (t.qps < 1 || t.qps > 1024) return "--qps must be between 1 and 1024";
  if (t.batch < 1 || t.sges < 1 || t.sges > 8) return "--batch and --sges must be small positives";
  if (t.size > (64u << 20)) return "--size is too large";
  bool has_sends = t.op == Op::kSend || t.op == Op::kSendImm || t.op == Op::kMixed;
  if (has_sends && t.size < kHeaderBytes) return "a SEND carries a header: --size 16 at least";
  if (t.receiver_rtr && (t.bidirectional || t.credits == Credits::kVerbs))
    return "a receiver that stays in RTR cannot send";
  return {};
}

}  // namespace traffic
