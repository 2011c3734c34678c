// What every traffic program does around its traffic: the two processes meet, connect their QPs,
// run the main loop, and write the results.
#pragma once

#include <cstdio>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "end.h"
#include "options.h"
#include "report.h"
#include "tcp_channel.h"
#include "verbs_transport.h"

namespace traffic {

// The client sends `told`, which says what the traffic is; the server receives it. Returns nullptr
// with a message when the two cannot meet.
std::unique_ptr<TcpChannel> session_open(const Local& local, nlohmann::json* told,
                                         std::string* error);

// Both ends meet, and the server takes the client's options. Prints why and returns nullptr when
// that fails, or when `problem_of` finds the options impossible.
template <class Options>
std::unique_ptr<TcpChannel> session_agree(const char* program, const Local& local, Options* options,
                                          std::string (*problem_of)(const Options&)) {
  nlohmann::json told = *options;
  std::string problem;
  auto side = session_open(local, &told, &problem);
  if (side) {
    *options = told.get<Options>();
    problem = problem_of(*options);
  }
  if (problem.empty()) return side;
  fprintf(stderr, "%s: %s\n", program, problem.c_str());
  return nullptr;
}

inline bool never_loopback(uint32_t) {
  return false;
}

// Exchanges addresses and connects all QPs; a loopback QP is connected to itself. Returns false
// when something failed, which is in the report.
bool connect_all(uint32_t qps, const std::function<bool(uint32_t)>& is_loopback,
                 VerbsTransport* verbs, TcpChannel* side, Report* report);

struct Session {
  const char* program;
  Traffic verbs;        // what the transport and the main loop need to know
  nlohmann::json told;  // for the result file
  Local local;
  std::function<bool(uint32_t)> is_loopback = never_loopback;
  std::function<std::unique_ptr<End>(Transport*, SideChannel*, Report*)> make;

  bool is_client() const { return !local.server.empty(); }
};

// Does the whole run. Returns the exit code.
int session_run(const Session& session, TcpChannel* side);

}  // namespace traffic
