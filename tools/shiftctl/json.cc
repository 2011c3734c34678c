#include "json.h"

#include <nlohmann/json.hpp>

#include "standing.h"
#include "text.h"

namespace shift::ctl {

namespace {

using Json = nlohmann::ordered_json;

constexpr int kVersion = 1;

template <size_t N>
std::string text(const std::array<char, N>& from) {
  return text_safe(state::text_of(from));
}

Json bits(uint8_t mask) {
  Json numbers = Json::array();
  for (int i = 0; i < 8; i++)
    if ((mask >> i & 1) != 0) numbers.push_back(i);
  return numbers;
}

Json device_json(const state::DeviceRecord& device) {
  Json nics = Json::array();
  for (unsigned i = 0; i < device.members; i++)
    nics.push_back({{"name", text_safe(device.name(i))},
                    {"up", (device.up >> i & 1) != 0},
                    {"drained", (device.drained >> i & 1) != 0},
                    {"late", (device.late >> i & 1) != 0}});
  return {{"name", text_safe(device.name(0))},
          {"protected", device.members > 1 && device.problem[0] == '\0'},
          {"problem", text(device.problem)},
          {"stock_qps", device.stock_qps},
          {"nics", std::move(nics)}};
}

Json path_json(const Process& process, const state::GroupRecord& group) {
  if (group.member == state::GroupRecord::kNoPath) return nullptr;
  Json path{{"nic", nic_of(process, group)}, {"peer_nic", nullptr}};
  if (group.peer_member != state::GroupRecord::kNoPath) path["peer_nic"] = group.peer_member;
  return path;
}

Json qp_json(const Process& process, const state::GroupRecord& group) {
  return {{"qp", hex(group.qpn)},
          {"device", text(group.device)},
          {"gid", gid_text(group.gid)},
          {"peer_qp", hex(group.peer_qpn)},
          {"peer_gid", gid_text(group.peer_gid)},
          {"standing", to_string(standing_of(group))},
          {"state", state_name(group)},
          {"since", time_utc(group.since_ns)},
          {"path", path_json(process, group)},
          {"ready", ready_nics_of(process, group)},
          {"problem", problem_of(process, group)},
          {"leader", group.is_leader != 0},
          {"self", group.is_self != 0},
          {"peer_nics", group.peer_members},
          {"peer_up", bits(group.peer_up)},
          {"avoided", bits(group.avoided)},
          {"peer_avoided", bits(group.peer_avoided)},
          {"epoch", group.epoch},
          {"pause_us", group.pause_us}};
}

Json fault_json(const state::FaultRecord& fault) {
  if (is_incident(fault))
    return {{"time", time_utc(fault.time_ns)},
            {"incident", place_name(fault)},
            {"certain", fault.place != state::FaultRecord::kIncident},
            {"nic", text(fault.from)},
            {"peer", text(fault.to)},
            {"detector", detector_name(fault.detector)},
            {"evidence", text(fault.cause)},
            {"qps", fault.epoch},
            {"us", fault.pause_us}};
  return {{"time", time_utc(fault.time_ns)},
          {"qp", hex(fault.qpn)},
          {"epoch", fault.epoch},
          {"from", text(fault.from)},
          {"to", text(fault.to)},
          {"detector", detector_name(fault.detector)},
          {"cause", text(fault.cause)},
          {"failed", fault.failed != 0},
          {"reason", fault.failed != 0 ? Json(refusal_name(fault.refusal)) : Json(nullptr)},
          {"pause_us", fault.pause_us},
          {"fence_us", fault.fence_us},
          {"notice_us", fault.notice_us},
          {"replayed", fault.replayed},
          {"completed", fault.completed}};
}

Json process_json(const Host& host, const Process& process) {
  const state::ProcessRecord& record = process.record;
  Json one{{"pid", process.pid},
           {"own_pid", record.pid},
           {"uid", process.uid},
           {"user", host.user_of(process.uid)},
           {"program", text(record.program)},
           {"command", text(record.command)},
           {"live", process.is_live},
           {"closed", record.is_closed != 0},
           {"started", time_utc(record.started_ns)},
           {"written", time_utc(record.written_ns)},
           {"layer", text(record.version)},
           {"wire_version", record.wire_version},
           {"has_key", record.has_key != 0},
           {"problem", text(record.problem)},
           {"lost_qps", record.lost_groups},
           {"lost_devices", record.lost_devices},
           {"devices", Json::array()},
           {"qps", Json::array()},
           {"faults", Json::array()}};
  for (const auto& device : process.devices) one["devices"].push_back(device_json(device));
  for (const auto& group : process.groups) one["qps"].push_back(qp_json(process, group));
  for (const auto& fault : process.faults) one["faults"].push_back(fault_json(fault));
  return one;
}

Json nic_json(const Nic& nic) {
  return {{"name", nic.name},       {"processes", nic.processes}, {"down", nic.down},
          {"drained", nic.drained}, {"ordered", nic.is_ordered},  {"late", nic.late},
          {"qps", nic.qps},         {"stock_qps", nic.stock_qps}};
}

Json problem_json(const Problem& problem) {
  return {{"severity", problem.severity == Severity::kFailed ? "failed" : "degraded"},
          {"text", problem.text}};
}

}  // namespace

std::string status_json(const Host& host, bool is_one_line) {
  Json all{
      {"version", kVersion},       {"processes", Json::array()},
      {"nics", Json::array()},     {"drained", {{"root", host.drained}, {"users", Json::object()}}},
      {"problems", Json::array()}, {"unreadable", host.unreadable}};
  for (const auto& process : host.processes)
    all["processes"].push_back(process_json(host, process));
  for (const auto& nic : nics_of(host)) all["nics"].push_back(nic_json(nic));
  for (const auto& user : host.users)
    if (!user.drained.empty()) all["drained"]["users"][user.name] = user.drained;
  for (const auto& problem : problems_of(host)) all["problems"].push_back(problem_json(problem));
  return all.dump(is_one_line ? -1 : 1) + "\n";
}

std::string event_json(const Event& event) {
  Json line{{"version", kVersion},
            {"pid", event.process->pid},
            {"uid", event.process->uid},
            {"program", text(event.process->record.program)}};
  line.update(fault_json(*event.fault));
  return line.dump() + "\n";
}

std::string health_json(const std::vector<Problem>& problems, int exit_status) {
  constexpr const char* kWords[] = {"ok", "degraded", "failed"};
  Json all{{"version", kVersion}, {"health", kWords[exit_status]}, {"problems", Json::array()}};
  for (const auto& problem : problems) all["problems"].push_back(problem_json(problem));
  return all.dump(1) + "\n";
}

std::string settings_json(const std::vector<Setting>& settings) {
  Json all{{"version", kVersion}, {"settings", Json::object()}};
  for (const auto& setting : settings)
    all["settings"][setting.name] = {{"value", setting.value}, {"source", setting.source}};
  return all.dump(1) + "\n";
}

}  // namespace shift::ctl
