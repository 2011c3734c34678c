// shiftctl status: processes, devices, QPs, what is wrong, and the last faults, for people.
#pragma once

#include <string>

#include "host.h"

namespace shift::ctl {

// `all`: a line for each QP, too.
std::string status_text(const Host& host, bool all);

// What was found out about a fault of a NIC; the record is an incident.
std::string incident_text(const state::FaultRecord& fault);
// A fault or an incident as a line, with its time.
std::string fault_text(const Process& process, const state::FaultRecord& fault);

}  // namespace shift::ctl
