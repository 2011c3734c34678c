// How two processes meet: the side channel, who decides the traffic, and the QPs' addresses.
#pragma once

#include <memory>
#include <string>

#include "options.h"
#include "report.h"
#include "tcp_channel.h"
#include "verbs_transport.h"

namespace traffic {

// The client sends its options, the server takes them over. nullptr with a message on failure.
std::unique_ptr<TcpChannel> side_open(const Local& local, Traffic* traffic, std::string* error);
// False when something failed; the report has it.
bool connect_all(const Traffic& traffic, VerbsTransport* verbs, TcpChannel* side, Report* report);

}  // namespace traffic
