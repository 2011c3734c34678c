#include "../metrics.h"

#include <gtest/gtest.h>

#include "fake.h"

namespace shift::ctl {
namespace {

Process process_of(const test::Fake& fake, bool is_live) {
  Process process;
  process.is_live = is_live;
  process.record = fake.process;
  process.devices = fake.devices;
  process.groups = fake.groups;
  return process;
}

bool has(const std::string& text, const std::string& line) {
  return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
}

TEST(Metrics, counts_are_summed_over_all_files_and_the_totals) {
  auto fake = test::Fake::with(1, {"mlx5_0", "mlx5_1"});
  fake.process.counters.switches[1] = 2;
  fake.process.counters.switches[15] = 1;  // a detector that this build does not know
  fake.process.counters.pauses = {1, 2};
  fake.process.counters.pauses.back() = 4;
  fake.process.counters.pause_us = 1'500'000;
  fake.process.counters.failed[5] = 3;
  Host host;
  host.processes = {process_of(fake, true), process_of(fake, false)};
  host.ended = fake.process.counters;
  const std::string text = metrics_text(host);
  EXPECT_TRUE(has(text, "shift_switches_total{detector=\"completion\"} 6")) << text;
  EXPECT_TRUE(has(text, "shift_switches_total{detector=\"other\"} 3"));
  EXPECT_TRUE(has(text, "shift_switch_seconds_bucket{le=\"0.0005\"} 3"));
  EXPECT_TRUE(has(text, "shift_switch_seconds_bucket{le=\"0.001\"} 9"));
  EXPECT_TRUE(has(text, "shift_switch_seconds_bucket{le=\"5\"} 9"));
  EXPECT_TRUE(has(text, "shift_switch_seconds_bucket{le=\"+Inf\"} 21"));
  EXPECT_TRUE(has(text, "shift_switch_seconds_count 21"));
  EXPECT_TRUE(has(text, "shift_switch_seconds_sum 4.5"));
  EXPECT_TRUE(has(text, "shift_failed_qps_total{reason=\"fence-failed\"} 9"));
  EXPECT_TRUE(has(text, "shift_processes 1"));
  EXPECT_TRUE(has(text, "shift_processes_not_closed 1"));
}

TEST(Metrics, states_are_those_of_live_processes) {
  auto fake = test::Fake::with(1, {"mlx5_0", "mlx5_1"});
  fake.devices[0].up = 1;
  fake.devices[0].late = 2;
  fake.add_qp(1, 1);
  fake.add_qp(2, 0);
  state::text_set(fake.add_qp(3, 0, fsm::State::kUnbound).problem, "no SHIFT at the peer");
  state::text_set(fake.add_qp(4, 0, fsm::State::kUnbound).problem, "x\"} 1\nevil 1");
  Host host;
  host.processes = {process_of(fake, true), process_of(fake, false)};
  host.drained.insert("mlx5_1");
  host.unreadable.push_back("a");
  const std::string text = metrics_text(host);
  EXPECT_TRUE(has(text, "shift_qps{state=\"protected\"} 1")) << text;
  EXPECT_TRUE(has(text, "shift_qps_single_path 1"));
  EXPECT_TRUE(has(text, "shift_unprotected_qps{reason=\"no-shift-at-peer\"} 1"));
  EXPECT_TRUE(has(text, "shift_unprotected_qps{reason=\"other\"} 1"));
  EXPECT_TRUE(has(text, "shift_nic_up{device=\"mlx5_0\"} 1"));
  EXPECT_TRUE(has(text, "shift_nic_up{device=\"mlx5_1\"} 0"));
  EXPECT_TRUE(has(text, "shift_nic_drained{device=\"mlx5_1\"} 1"));
  EXPECT_TRUE(has(text, "shift_nic_late{device=\"mlx5_1\"} 1"));
  EXPECT_TRUE(has(text, "shift_nic_qps{device=\"mlx5_0\"} 4"));
  EXPECT_TRUE(has(text, "shift_state_read_errors 1"));
  EXPECT_EQ(text.find("evil"), std::string::npos);
}

TEST(Metrics, names_of_nics_are_bounded) {
  Host host;
  for (int i = 0; i < 100; i++) {
    auto fake = test::Fake::with(1, {"nic" + std::to_string(i), "bad name"});
    host.processes.push_back(process_of(fake, true));
  }
  const std::string text = metrics_text(host);
  size_t count = 0;
  for (size_t at = 0; (at = text.find("shift_nic_up{", at)) != std::string::npos; at++) count++;
  EXPECT_EQ(count, 64u);
  EXPECT_EQ(text.find("bad name"), std::string::npos);
}

}  // namespace
}  // namespace shift::ctl
