// shift-life: many threads make, use and destroy verbs objects in every legal order, in two
// processes that talk to each other, while a script breaks NICs. It is a plain verbs program, which
// includes and links nothing of the layer. Queue pairs may fail, since not all are protected yet
// when a fault comes. But every request completes once and in order, each byte that arrived is
// right, an object in use cannot be destroyed, and nothing hangs.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

#include "local_options.h"
#include "objects.h"
#include "pattern.h"
#include "report.h"
#include "tcp_channel.h"

namespace life {
namespace {

using traffic::Domain;
using traffic::now_ns;
using traffic::TcpChannel;

constexpr uint32_t kSetUpMs = 30'000;
// Without a second path, a fault makes a queue pair fail after the NIC's own retries. With one, the
// layer masks the fault, or the queue pair fails, in less time.
constexpr uint64_t kStallNs = 20'000'000'000;

struct Settings {
  uint64_t seed = 1;
  uint32_t threads = 8, seconds = 5;
  traffic::Local local;
};

struct Totals {
  std::atomic<uint64_t> sets{0}, queue_pairs{0}, failed{0}, messages{0};
};

class Worker {
 public:
  Worker(const Settings& settings, const Shared& shared, uint32_t thread,
         std::unique_ptr<TcpChannel> partner, Totals* totals)
      : settings_(settings),
        shared_(shared),
        thread_(thread),
        is_client_(!settings.local.server.empty()),
        partner_(std::move(partner)),
        totals_(totals) {}

  // Returns what was wrong, or an empty string.
  std::string run() {
    const uint64_t end = now_ns() + settings_.seconds * 1'000'000'000ull;
    for (number_ = 0;; number_++) {
      // The client says whether there is another set.
      if (is_client_) {
        const bool more = now_ns() < end;
        say(more ? "more" : "over");
        if (!more) break;
      } else if (const std::string word = hear(); word != "more") {
        if (word != "over") complain("the partner is gone");
        break;
      }
      one_set();
      if (!problem_.empty()) break;
    }
    if (problem_.empty()) return {};
    char where[64];
    snprintf(where, sizeof where, "thread %u, set %u: ", thread_, number_);
    return where + problem_;
  }

 private:
  void complain(const std::string& what) {
    if (problem_.empty()) problem_ = what;
  }
  void say(const std::string& line) { partner_->send_line(line); }
  // Returns the next line of the partner, or an empty one when none comes.
  std::string hear() {
    if (ahead_.empty()) return partner_->wait_line(kSetUpMs);
    const std::string line = ahead_.front();
    ahead_.pop_front();
    return line;
  }
  // Says `word` and waits until the partner has said it, too.
  bool barrier(const char* word) {
    say(word);
    for (std::string line; line != word;) {
      line = hear();
      if (line.empty()) return complain(std::string("the partner never said ") + word), false;
    }
    return true;
  }

  void one_set() {
    const Plan plan(settings_.seed, thread_, number_);
    plan_ = &plan;
    Dice own(plan.key ^ (is_client_ ? 0xc11e : 0x5e4e));
    // All regions are in the memory of these objects and end with them.
    Objects objects(plan, shared_, own, settings_.local.gid_index);
    objects_ = &objects;
    if (!objects.make()) return complain(objects.problem());
    totals_->sets++;
    const uint32_t turns = objects.has_shared_receives() ? 1 : plan.turns;
    // The other end may have drawn a shared receive queue and then has one turn only.
    const std::string word = std::to_string(turns);
    say(word);
    const std::string theirs = hear();
    for (uint32_t turn = 0; turn < (theirs == word ? turns : 1) && problem_.empty(); turn++) {
      if (turn > 0 && !objects.rewind()) return complain(objects.problem());
      if (!meet()) return;
      traffic(turn);
      if (plan.is_shut && problem_.empty()) shut();
      // Both ends must be quiet before QPs are used again, unless one of them leaves early.
      if (plan.end != End::kBoth || !problem_.empty() || !barrier("quiet")) break;
    }
    if (!objects.destroy()) complain(objects.problem());
    if (problem_.empty()) barrier("done");
  }

  // Exchanges addresses, connects, and posts receives.
  bool meet() {
    peers_.assign(plan_->qps, {});
    for (uint32_t qp = 0; qp < plan_->qps; qp++) say(objects_->address(qp).to_text());
    for (uint32_t qp = 0; qp < plan_->qps; qp++) {
      if (!Address::parse(hear(), &peers_[qp])) return complain("no address of the partner"), false;
      if (!objects_->connect(qp, peers_[qp])) return complain(objects_->problem()), false;
    }
    if (!objects_->post_receives(plan_->messages)) return complain(objects_->problem()), false;
    say("ready");
    if (hear() != "ready") return complain("the partner is not ready"), false;
    totals_->queue_pairs += plan_->qps;
    return true;
  }

  struct Progress {
    uint32_t posted = 0, sent = 0, received = 0, send_errors = 0, receive_errors = 0;
    bool has_failed() const { return send_errors + receive_errors != 0; }
  };

  // A QP that has failed completes every request. On another QP nothing more may come when the
  // partner has failed or left.
  bool is_over(const Progress& p) const {
    if (p.has_failed()) return is_flushed(p);
    return partner_failed_ || (p.sent == plan_->messages && p.received == plan_->messages);
  }
  bool is_flushed(const Progress& p) const {
    return p.sent + p.send_errors == p.posted &&
           (objects_->has_shared_receives() || p.received + p.receive_errors == plan_->messages);
  }

  // Brings the QPs to ERR: all that is outstanding must complete (C1).
  void shut() {
    if (!objects_->shut()) return complain(objects_->problem());
    const uint64_t begun = now_ns();
    for (bool moved; problem_.empty() && !std::ranges::all_of(progress_, [&](const Progress& p) {
                       return is_flushed(p);
                     });) {
      if (!poll(&moved)) return;
      if (now_ns() - begun > kStallNs) complain("not all is flushed: " + state_text());
    }
  }

  void traffic(uint32_t turn) {
    turn_ = turn;
    partner_failed_ = false;
    progress_.assign(plan_->qps, {});
    const bool goes_early = plan_->end == (is_client_ ? End::kClientEarly : End::kServerEarly);
    const uint32_t enough = plan_->messages / 2;
    uint64_t last = begun_ns_ = now_ns();
    bool said = false;
    for (;;) {
      bool moved = false;
      for (uint32_t qp = 0; qp < plan_->qps; qp++) moved |= send_some(qp);
      if (!poll(&moved)) return;
      if (moved) last = now_ns();
      while (auto line = partner_->receive_line()) {
        if (*line == "failed" || *line == "leaves") {
          partner_failed_ = true;
        } else {
          ahead_.push_back(*line);
        }
      }
      // Each end says that it has failed, so that the other does not wait for nothing.
      const bool failed = partner_failed_ || std::ranges::any_of(progress_, &Progress::has_failed);
      if (failed && !std::exchange(said, true)) say("failed");
      if (goes_early && progress_.front().sent >= enough) return say("leaves");
      if (std::ranges::all_of(progress_, [&](const Progress& p) { return is_over(p); })) break;
      if (!moved) std::this_thread::yield();
      if (now_ns() - last > kStallNs) return complain("nothing moves: " + state_text());
    }
    totals_->failed +=
        static_cast<uint64_t>(std::ranges::count_if(progress_, &Progress::has_failed));
  }

  bool send_some(uint32_t qp) {
    Progress& p = progress_[qp];
    if (p.has_failed() || partner_failed_ || p.posted == plan_->messages) return false;
    if (now_ns() - begun_ns_ < plan_->lasts_ms * 1'000'000ull * p.posted / plan_->messages)
      return false;
    traffic::pattern_fill(key(is_client_, qp, p.posted),
                          {objects_->out_slot(qp, p.posted), plan_->size});
    if (!objects_->post_send(qp, p.posted, peers_[qp])) return complain(objects_->problem()), false;
    p.posted++;
    return true;
  }

  bool poll(bool* moved) {
    if (!problem_.empty()) return false;
    std::array<ibv_wc, 16> wcs;
    const int got = objects_->poll(wcs);
    if (got < 0) return complain("polling fails"), false;
    for (int i = 0; i < got; i++) {
      *moved = true;
      if (!take(wcs[static_cast<size_t>(i)])) return false;
    }
    return true;
  }

  bool take(const ibv_wc& wc) {
    const uint32_t qp = objects_->qp_index(wc.qp_num);
    if (qp == plan_->qps) return complain("a completion of nobody's QP"), false;
    Progress& p = progress_[qp];
    if (wc.status != IBV_WC_SUCCESS) {
      if (!is_lawful(wc.status)) {
        return complain(std::string("a completion says ") + ibv_wc_status_str(wc.status)), false;
      }
      (wc.wr_id & Objects::kReceive ? p.receive_errors : p.send_errors)++;
      return true;
    }
    if (wc.opcode & IBV_WC_RECV) return arrived(qp, p, wc);
    if (p.send_errors != 0) return complain("a success after an error"), false;
    if (wc.wr_id != p.sent) return complain("sends complete in another order"), false;
    p.sent++;
    return true;
  }

  bool is_lawful(ibv_wc_status status) const {
    if (status == IBV_WC_WR_FLUSH_ERR || status == IBV_WC_RETRY_EXC_ERR) return true;
    // A partner that leaves early may deregister its regions before it destroys its queue pairs.
    return plan_->end == (is_client_ ? End::kServerEarly : End::kClientEarly) &&
           status == (plan_->is_immediate ? IBV_WC_REM_ACCESS_ERR : IBV_WC_REM_OP_ERR);
  }

  bool arrived(uint32_t qp, Progress& p, const ibv_wc& wc) {
    const uint32_t number = wc.imm_data, place = static_cast<uint32_t>(wc.wr_id);
    if (p.receive_errors != 0) return complain("a message after a flushed receive"), false;
    if (number != p.received)
      return complain("message " + std::to_string(number) + " instead of " +
                      std::to_string(p.received)),
             false;
    p.received++;
    totals_->messages++;
    // A WRITE is in the slot that the sender named, a SEND in the slot of its receive.
    const std::byte* at = plan_->is_immediate
                              ? objects_->in_slot(qp, number)
                              : objects_->in_slot(place / plan_->messages, place % plan_->messages);
    if (!plan_->is_immediate && wc.byte_len != plan_->size)
      return complain("a wrong length"), false;
    const auto wrong = traffic::pattern_mismatch(key(!is_client_, qp, number), {at, plan_->size});
    if (!wrong) return true;
    return complain("message " + std::to_string(number) + " is wrong at byte " +
                    std::to_string(*wrong)),
           false;
  }

  uint64_t key(bool from_client, uint32_t qp, uint32_t number) const {
    return traffic::pattern_key(plan_->key + turn_, Domain::kPayload, from_client, qp, number);
  }

  std::string state_text() const {
    std::string text;
    for (const Progress& p : progress_) {
      char one[128];
      snprintf(one, sizeof one, "[%u of %u posted, %u sent, %u received, %u and %u errors] ",
               p.posted, plan_->messages, p.sent, p.received, p.send_errors, p.receive_errors);
      text += one;
    }
    return text;
  }

  const Settings& settings_;
  const Shared& shared_;
  const uint32_t thread_;
  const bool is_client_;
  const std::unique_ptr<TcpChannel> partner_;
  Totals* const totals_;
  uint32_t number_ = 0;
  std::string problem_;
  // These belong to the current set.
  const Plan* plan_ = nullptr;
  Objects* objects_ = nullptr;
  std::vector<Address> peers_;
  std::vector<Progress> progress_;
  std::deque<std::string> ahead_;  // lines that came before the traffic ended
  bool partner_failed_ = false;
  uint32_t turn_ = 0;
  uint64_t begun_ns_ = 0;
};

bool open(const traffic::Local& local, Shared* shared) {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  for (int i = 0; i < count && shared->context == nullptr; i++) {
    if (local.device.empty() || local.device == ibv_get_device_name(list[i])) {
      shared->context = ibv_open_device(list[i]);
    }
  }
  if (list != nullptr) ibv_free_device_list(list);
  if (shared->context != nullptr) shared->pd = ibv_alloc_pd(shared->context);
  return shared->pd != nullptr;
}

// Finds the partner of one thread. Threads call it in turn, so that thread n gets thread n.
std::unique_ptr<TcpChannel> partner_of(const Settings& settings, uint16_t* port) {
  const traffic::Local& local = settings.local;
  std::string error;
  std::unique_ptr<TcpChannel> partner;
  if (local.server.empty()) {
    partner = TcpChannel::accept_one(local.listen, *port, kSetUpMs, &error);
    if (partner != nullptr) partner->send_line("hello");
  } else {
    partner = TcpChannel::connect_to(local.server, *port, kSetUpMs, &error);
    if (partner != nullptr && partner->wait_line(kSetUpMs) != "hello") partner.reset();
  }
  if (partner == nullptr) fprintf(stderr, "shift-life: no partner: %s\n", error.c_str());
  return partner;
}

int run(const Settings& settings) {
  Shared shared;
  if (!open(settings.local, &shared)) {
    fprintf(stderr, "shift-life: no such device, or it does not open\n");
    return 2;
  }
  Totals totals;
  std::vector<std::unique_ptr<Worker>> workers;
  uint16_t port = settings.local.port;
  for (uint32_t thread = 0; thread < settings.threads; thread++) {
    auto partner = partner_of(settings, &port);
    if (partner == nullptr) return 2;
    workers.push_back(
        std::make_unique<Worker>(settings, shared, thread, std::move(partner), &totals));
  }
  std::mutex mutex;
  std::string problems;
  {
    std::vector<std::jthread> threads;
    for (auto& worker : workers) {
      threads.emplace_back([&] {
        const std::string problem = worker->run();
        std::lock_guard lock(mutex);
        if (!problem.empty()) problems += "problem: " + problem + "\n";
      });
    }
  }
  if (ibv_dealloc_pd(shared.pd) != 0) problems += "problem: the shared PD does not go\n";
  if (ibv_close_device(shared.context) != 0)
    problems += "problem: the shared context does not go\n";
  printf("%s%lu sets, %lu queue pairs, %lu failed, %lu messages\n", problems.c_str(),
         totals.sets.load(), totals.queue_pairs.load(), totals.failed.load(),
         totals.messages.load());
  return problems.empty() ? 0 : 1;
}

}  // namespace
}  // namespace life

int main(int argc, char** argv) {
  CLI::App app{"Verbs objects made, used and destroyed by many threads"};
  life::Settings settings;
  traffic::local_options_add(&app, &settings.local);
  app.add_option("--seed", settings.seed, "must be equal at both ends");
  app.add_option("--threads", settings.threads, "must be equal at both ends");
  app.add_option("--seconds", settings.seconds, "how long the client makes new objects");
  CLI11_PARSE(app, argc, argv);
  return life::run(settings);
}
