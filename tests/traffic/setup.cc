#include "setup.h"

#include <cstdio>

namespace traffic {
namespace {

constexpr uint32_t kSetupMs = 20000;

std::string address_text(const QpAddress& address) {
  std::string text = fmt::format("{} {} ", address.qp_num, address.psn);
  for (uint8_t byte : address.gid.raw) text += fmt::format("{:02x}", byte);
  return text;
}

bool address_parse(const std::string& text, QpAddress* out) {
  char hex[40] = "";
  if (sscanf(text.c_str(), "%u %u %32s", &out->qp_num, &out->psn, hex) != 3) return false;
  for (int i = 0; i < 16; ++i) {
    unsigned byte = 0;
    if (sscanf(hex + i * 2, "%2x", &byte) != 1) return false;
    out->gid.raw[i] = static_cast<uint8_t>(byte);
  }
  return true;
}

}  // namespace

std::unique_ptr<TcpChannel> side_open(const Local& local, Traffic* traffic, std::string* error) {
  if (local.server.empty()) {
    auto side = TcpChannel::accept_one(local.port, kSetupMs, error);
    if (!side) return nullptr;
    auto json = nlohmann::json::parse(side->wait_line(kSetupMs), nullptr, false);
    if (json.is_discarded()) {
      *error = "the client sent no options";
      return nullptr;
    }
    *traffic = json.get<Traffic>();
    *error = traffic_problem(*traffic);
    return error->empty() ? std::move(side) : nullptr;
  }
  auto side = TcpChannel::connect_to(local.server, local.port, kSetupMs, error);
  if (side) side->send_line(nlohmann::json(*traffic).dump());
  return side;
}

bool connect_all(const Traffic& traffic, VerbsTransport* verbs, TcpChannel* side, Report* report) {
  for (uint32_t qp = 0; qp < traffic.qps; ++qp) side->send_line(address_text(verbs->address(qp)));
  for (uint32_t qp = 0; qp < traffic.qps; ++qp) {
    QpAddress remote;
    if (!address_parse(side->wait_line(kSetupMs), &remote)) {
      report->error("the other end sent no address");
      return false;
    }
    if (!verbs->connect(qp, remote)) return false;
  }
  return true;
}

}  // namespace traffic
