#include "../standing.h"

#include <gtest/gtest.h>

#include "../drain_plan.h"
#include "../problems.h"
#include "../status.h"
#include "../target.h"
#include "control/locate.h"
#include "fake.h"

namespace shift::ctl {
namespace {

Process process_of(const test::Fake& fake) {
  Process process;
  process.is_live = true;
  process.pid = fake.process.pid;
  process.record = fake.process;
  process.devices = fake.devices;
  process.groups = fake.groups;
  process.faults = fake.faults;
  return process;
}

TEST(Standing, state_names_are_those_of_the_state_machine) {
  for (uint8_t i = 0; i < static_cast<uint8_t>(fsm::State::kCount); i++) {
    state::GroupRecord group;
    group.state = i;
    EXPECT_STREQ(state_name(group), fsm::to_string(static_cast<fsm::State>(i)));
  }
}

TEST(Standing, each_state_has_one) {
  auto fake = test::Fake::with(1, {"mlx5_0", "mlx5_1"});
  using fsm::State;
  EXPECT_EQ(standing_of(fake.add_qp(1, 1)), Standing::kProtected);
  EXPECT_EQ(standing_of(fake.add_qp(2, 0)), Standing::kOnePath);
  EXPECT_EQ(standing_of(fake.add_qp(3, 1, State::kUnbound)), Standing::kUnprotected);
  EXPECT_EQ(standing_of(fake.add_qp(4, 1, State::kHeld)), Standing::kProtected);
  EXPECT_EQ(standing_of(fake.add_qp(5, 1, State::kSeeking)), Standing::kMoving);
  EXPECT_EQ(standing_of(fake.add_qp(6, 1, State::kFailed)), Standing::kFailed);
  EXPECT_EQ(standing_of(fake.add_qp(7, 1, State::kClosed)), Standing::kClosed);
  auto& searching = fake.add_qp(8, 0);
  searching.peer_members = 0;
  EXPECT_EQ(standing_of(searching), Standing::kSearching);
  searching.is_self = 1;
  EXPECT_EQ(standing_of(searching), Standing::kOnePath);
  auto& between = fake.add_qp(9, 1);
  between.member = state::GroupRecord::kNoPath;
  EXPECT_EQ(standing_of(between), Standing::kMoving);
}

TEST(Standing, an_incident_is_told_as_such) {
  auto fake = test::Fake::with(1, {"mlx5_0", "mlx5_1"});
  state::FaultRecord& fault = fake.add_fault(0, 1, "A0-A1 fails");
  EXPECT_FALSE(is_incident(fault));
  fault.place = state::FaultRecord::kIncident | static_cast<uint8_t>(control::Place::kLocal);
  fault.epoch = 12;
  fault.pause_us = 31000;
  state::text_set(fault.to, "");
  EXPECT_TRUE(is_incident(fault));
  EXPECT_EQ(incident_text(fault),
            "mlx5_0: the fault is local (certain, after 31 ms; 12 QPs): A0-A1 fails");
  fault.place = state::FaultRecord::kIncident;
  state::text_set(fault.to, "10.0.0.2");
  EXPECT_EQ(
      incident_text(fault),
      "mlx5_0 to 10.0.0.2: the fault is unknown (not certain, after 31 ms; 12 QPs): A0-A1 fails");
  fault.place = state::FaultRecord::kIncident | 77;
  EXPECT_STREQ(place_name(fault), "unknown");
}

TEST(Standing, a_reason_is_always_given) {
  auto fake = test::Fake::with(1, {"mlx5_0", "mlx5_1"});
  fake.add_qp(1, 1, fsm::State::kUnbound);
  Process process = process_of(fake);
  EXPECT_EQ(problem_of(process, process.groups[0]), "its process gives no reason");
  state::text_set(process.record.problem, "the key file");
  EXPECT_EQ(problem_of(process, process.groups[0]), "the key file");
  state::text_set(process.devices[0].problem, "no partner");
  EXPECT_EQ(problem_of(process, process.groups[0]), "no partner");
  state::text_set(process.groups[0].problem, "no SHIFT\n");
  EXPECT_EQ(problem_of(process, process.groups[0]), "no SHIFT\\x0a");
}

TEST(Standing, a_nic_is_what_all_processes_say_of_it) {
  Host host;
  for (uint32_t pid = 1; pid <= 2; pid++) {
    auto fake = test::Fake::with(pid, {"mlx5_0", "mlx5_1"});
    fake.add_qp(1, 1);
    if (pid == 2) fake.devices[0].up = 1, fake.groups[0].member = 1;
    fake.devices.push_back(fake.devices[0]);  // open twice
    host.processes.push_back(process_of(fake));
  }
  host.drained.insert("mlx5_7");
  const auto nics = nics_of(host);
  ASSERT_EQ(nics.size(), 3u);
  EXPECT_EQ(nics[0].name, "mlx5_0");
  EXPECT_EQ(nics[0].processes, 2u);
  EXPECT_EQ(nics[0].qps, 1u);
  EXPECT_EQ(nics[1].down, 1u);
  EXPECT_EQ(nics[1].qps, 1u);
  EXPECT_TRUE(nics[2].is_ordered);
  EXPECT_EQ(nics[2].processes, 0u);
}

TEST(DrainPlan, names_what_cannot_leave) {
  auto fake = test::Fake::with(4711, {"mlx5_0", "mlx5_1"});
  fake.devices[0].stock_qps = 3;
  fake.add_qp(0x10, 2);
  state::text_set(fake.add_qp(0x11, 0).problem, "nothing passes");
  state::text_set(fake.add_qp(0x12, 0, fsm::State::kUnbound).problem, "no SHIFT at the peer");
  fake.add_qp(0x13, 0, fsm::State::kFailed);
  fake.add_qp(0x14, 0, fsm::State::kSeeking).member = state::GroupRecord::kNoPath;
  fake.add_qp(0x15, 0).member = 1;
  Host host;
  host.processes.push_back(process_of(fake));
  const DrainPlan plan = drain_plan(host, "mlx5_0");
  EXPECT_EQ(plan.processes, 1u);
  EXPECT_EQ(plan.on_it, 3u);    // 0x10, 0x11, 0x14
  EXPECT_EQ(plan.staying, 1u);  // 0x12
  ASSERT_EQ(plan.notes.size(), 1u);
  EXPECT_EQ(
      plan.notes[0],
      "process 4711 (trainer): has made 3 QPs there of a kind that is not protected, such as UD, "
      "and may use them");
  ASSERT_EQ(plan.blocked.size(), 2u);
  EXPECT_EQ(plan.blocked[0],
            "process 4711 (trainer): QP 0x11 has no other path ready: nothing passes");
  EXPECT_EQ(plan.blocked[1],
            "process 4711 (trainer): QP 0x12 is not protected: no SHIFT at the peer");
  EXPECT_EQ(plan.remaining.size(), 4u);
  EXPECT_EQ(drain_plan(host, "mlx5_1").on_it, 2u);  // 0x15, and 0x14 may come there
  EXPECT_EQ(drain_plan(host, "mlx5_9").processes, 0u);
  host.processes[0].is_live = false;
  EXPECT_TRUE(drain_plan(host, "mlx5_0").remaining.empty());
}

TEST(Problems, those_of_the_same_kind_share_a_line) {
  auto fake = test::Fake::with(4711, {"mlx5_0", "mlx5_1"});
  for (uint32_t i = 0; i < 20; i++) state::text_set(fake.add_qp(i, 0).problem, "nothing passes");
  fake.add_qp(0x99, 0, fsm::State::kFailed);
  Host host;
  host.processes.push_back(process_of(fake));
  const auto problems = problems_of(host);
  ASSERT_EQ(problems.size(), 2u);
  EXPECT_EQ(problems[0].severity, Severity::kFailed);
  EXPECT_EQ(problems[1].severity, Severity::kDegraded);
  EXPECT_EQ(
      problems[1].text,
      "process 4711 (trainer): 20 QPs on mlx5_0 have one path only: nothing passes (0x0, 0x1, 0x2, "
      "0x3, 0x4, 0x5, 0x6, 0x7 and 12 more)");
  host.processes[0].is_live = false;
  EXPECT_TRUE(problems_of(host).empty());
}

TEST(Target, qps_have_two_spellings) {
  ASSERT_TRUE(qp_name_of("0x1F"));
  EXPECT_EQ(qp_name_of("0x1F")->qpn, 0x1fu);
  EXPECT_FALSE(qp_name_of("0x1f")->pid);
  EXPECT_EQ(qp_name_of("4711:0x1f")->pid, 4711u);
  for (const char* wrong :
       {"", "31", "0x", "x1", "0x1g", ":0x1", "a:0x1", "1:2", "0x123456789", "1:0x1:"})
    EXPECT_FALSE(qp_name_of(wrong)) << wrong;
}

}  // namespace
}  // namespace shift::ctl
