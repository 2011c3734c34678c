// One run of the simulation: it carries out a schedule on the layer's code in virtual time.
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
#include "sim/stranger.h"
#include "util/log.h"

namespace shift::sim {

class Simulation {
 public:
  // Each step is printed to `out`, unless that is null. Each host has so many more groups than the
  // schedule has pairs; they are those of a derived class, and are not judged.
  Simulation(const Schedule& schedule, std::FILE* out, int more_groups = 0);
  virtual ~Simulation();
  Simulation(const Simulation&) = delete;
  Simulation& operator=(const Simulation&) = delete;

  // Writes the event records of both ends to these files, as the layer writes them.
  void record_to(std::array<std::FILE*, 2> files) { files_ = files; }

  // Returns the broken rule, or an empty string when all rules held.
  const std::string& run();
  uint32_t rounds() const { return hosts_[0]->group->life.control.epoch; }
  uint64_t steps() const { return steps_; }

 protected:
  // What a derived class adds to a run: the two ends have begun; a message is about to be handed
  // over; a step is done.
  virtual void begun() {}
  virtual void heard(const net::Delegate& /*to*/, const wire::Message& /*message*/) {}
  virtual void stepped() {}
  // Whether nothing is promised to this QP, because it is not one of a pair; and whether its own
  // end was lied to in a way that no end can be in truth.
  virtual bool is_unjudged(uint64_t /*qpn*/) const { return false; }
  virtual bool is_confused(uint64_t /*qpn*/) const { return false; }

  const Schedule schedule_;
  std::FILE* const out_;
  Dice dice_;
  VirtualTime time_;
  net::MemoryNetwork network_{time_};
  control::SinkOfHosts sinks_;
  std::array<std::unique_ptr<control::Host>, 2> hosts_;
  std::array<bool, 2> polling_{}, gone_{};

 private:
  using Time = VirtualTime::Clock::time_point;

  bool step();
  void settle();
  // Runs until the condition holds. Returns false when it does not hold in time.
  template <typename Condition>
  bool run_until(Condition condition, Duration limit);
  void run_for(Duration span);

  // Two QPs that are connected to each other, one of each host, with their traffic and judges.
  struct Pair {
    Pair(VirtualTime& time, uint64_t pair_number, const std::array<AppPlan, 2>& planned)
        : number(pair_number), plans(planned), judge(number), fabric(time, judge) {}
    // Neither end sends.
    bool only_receives() const { return plans[0].only_receives && plans[1].only_receives; }
    const uint64_t number;
    const std::array<AppPlan, 2>& plans;
    Judge judge;
    RcFabric fabric;
    RoundsJudge rounds;
    std::array<group::Group*, 2> groups{};
    std::array<size_t, 2> late_receives{};
    // The sends that wait for the failback; null stands for a receive.
    std::array<std::vector<const AppPlan::Send*>, 2> waiting;
    int armed_ends = 0;  // one bit for each host: a second path is ready
  };
  void pair_add(size_t number, const std::array<AppPlan, 2>& plans);
  // Returns the pair of the QP with this number, and the QP's host.
  std::pair<Pair*, int> pair_of(uint64_t qpn);
  bool is_broken() const;
  void fail(std::string what) { pairs_.front().judge.fail(std::move(what)); }
  void poll(int host);
  bool is_converged(const Pair& pair) const;
  bool is_over(const Pair& pair) const;
  void host_gone(int host);
  void nic_blocked(int host, int from, int to, bool blocked);

  // These functions are in traffic.cc.
  void traffic_plan();
  void traffic_plan(Pair& pair, int host);
  void traffic_post(Pair& pair, int host, const AppPlan::Send* send);
  void traffic_way_back();
  void traffic_rest();

  void heal();
  void reach_rts();
  void finish();
  bool is_converged() const;
  void check_converged();
  bool is_uninformed(const Pair& pair, int h) const;
  void check_ended(Outcome outcome);
  bool has_failed() const;
  void check_excused();
  void check_failed();

  // These functions are in faults.cc.
  void fault_arm();
  void count(When when);
  void fault_fire();
  void fault_start(const Fault& fault);
  int member_of(const Fault& fault);
  void lasts(const Fault& fault, std::function<void()> end);
  void port_restore(int host, int member);
  void total_loss(int host);
  void drained(int host, int member, bool is_drained);
  void outage(const Fault& fault, int member);
  void hopeless(int host, bool knows);

  void on_record(const char* name, std::initializer_list<EventField> fields);
  void on_message(const net::Delegate& to, const wire::Message& message, bool before);
  int host_of(const net::Delegate& delegate) const;
  [[gnu::format(printf, 2, 3)]] void say(const char* format, ...);

  std::deque<Pair> pairs_;
  Stranger stranger_;
  std::array<group::PerMember<bool>, 2> told_down_{}, dead_{};

  size_t next_fault_ = 0;
  uint32_t left_ = 0;  // how many steps to count until the next fault
  bool armed_ = false, draining_ = false, healed_ = false;
  Duration slow_{};
  uint64_t steps_ = 0;
  struct {
    Time end{};
    uint64_t steps_before = 0;
  } second_;
  int lost_host_ = -1;  // the host that has no path any more
  std::array<std::FILE*, 2> files_{};
};

}  // namespace shift::sim
