// One run of the simulation: a schedule, carried out on the product's core under virtual time.
#pragma once

#include <cstdio>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "control/test/host.h"
#include "sim/judge.h"
#include "sim/rc_fabric.h"
#include "sim/rounds_judge.h"
#include "sim/schedule.h"
#include "util/log.h"

namespace shift::sim {

class Simulation {
 public:
  // `out`: where each step is told; null: nowhere.
  Simulation(const Schedule& schedule, std::FILE* out);
  ~Simulation();
  Simulation(const Simulation&) = delete;
  Simulation& operator=(const Simulation&) = delete;

  // Both ends' event records go there, as the layer writes them.
  void record_to(std::array<std::FILE*, 2> files) { files_ = files; }

  // The broken rule; empty when all held.
  const std::string& run();
  uint32_t rounds() const { return hosts_[0]->group->life.control.epoch; }
  uint64_t steps() const { return steps_; }

 private:
  using Time = VirtualTime::Clock::time_point;

  bool step();
  void settle();
  // Until the condition holds; false when it does not in time.
  template <typename Condition>
  bool run_until(Condition condition, Duration limit);
  void run_for(Duration span);

  // A QP of each host that are connected to each other, what they are used for, and its judges.
  struct Pair {
    Pair(VirtualTime& time, uint64_t pair_number, const std::array<AppPlan, 2>& planned)
        : number(pair_number), plans(planned), judge(time, number), fabric(time, judge) {}
    const uint64_t number;
    const std::array<AppPlan, 2>& plans;
    Judge judge;
    RcFabric fabric;
    RoundsJudge rounds;
    std::array<group::Group*, 2> groups{};
    std::array<size_t, 2> late_receives{};
    // What waits for the way back; null: a receive.
    std::array<std::vector<const AppPlan::Send*>, 2> waiting;
    int armed_ends = 0;  // bit per host: a second path is ready
  };
  void pair_add(size_t number, const std::array<AppPlan, 2>& plans);
  // Of the QP with this number, and its host.
  std::pair<Pair*, int> pair_of(uint64_t qpn);
  bool is_broken() const;
  void fail(std::string what) { pairs_.front().judge.fail(std::move(what)); }
  void poll(int host);
  bool is_converged(const Pair& pair) const;
  bool is_over(const Pair& pair) const;
  void host_gone(int host);
  void nic_blocked(int host, int from, int to, bool blocked);

  // traffic.cc
  void traffic_plan();
  void traffic_plan(Pair& pair, int host);
  void traffic_post(Pair& pair, int host, const AppPlan::Send* send);
  void traffic_way_back();
  void traffic_rest();

  void heal();
  void finish();
  bool is_converged() const;
  void check_converged();
  void check_ended(Outcome outcome);
  bool has_failed() const;
  void check_excused();
  void check_failed();

  // faults.cc
  void fault_arm();
  void count(When when);
  void fault_fire();
  void fault_start(const Fault& fault);
  int member_of(const Fault& fault);
  void lasts(const Fault& fault, std::function<void()> end);
  void port_restore(int host, int member);
  void total_loss(int host);
  void outage(const Fault& fault, int member);
  void hopeless(int host, bool knows);

  void on_record(const char* name, std::initializer_list<EventField> fields);
  void on_message(const net::Delegate& to, const wire::Message& message, bool before);
  int host_of(const net::Delegate& delegate) const;
  [[gnu::format(printf, 2, 3)]] void say(const char* format, ...);

  const Schedule schedule_;
  std::FILE* const out_;
  Dice dice_;
  VirtualTime time_;
  net::MemoryNetwork network_{time_};
  control::SinkOfHosts sinks_;
  std::array<std::unique_ptr<control::Host>, 2> hosts_;
  std::deque<Pair> pairs_;
  std::array<bool, 2> polling_{}, gone_{};
  std::array<group::PerMember<bool>, 2> told_down_{}, dead_{};

  size_t next_fault_ = 0;
  uint32_t left_ = 0;  // of the next fault's count
  bool armed_ = false, draining_ = false, healed_ = false;
  Duration slow_{};
  uint64_t steps_ = 0;
  int lost_host_ = -1;  // has no path any more
  std::array<std::FILE*, 2> files_{};
};

}  // namespace shift::sim
