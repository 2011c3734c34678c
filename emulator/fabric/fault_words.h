// The vocabulary of faults, used to parse and to show them.
#pragma once

#include "fabric/fault.h"

namespace cxemu {

struct FaultWord {
  const char* text;
  FaultCommand::Kind kind;
};
inline constexpr FaultWord kFaultWords[] = {
    {"link-down", FaultCommand::Kind::kLinkDown},
    {"link-up", FaultCommand::Kind::kLinkUp},
    {"kill", FaultCommand::Kind::kKill},
    {"revive", FaultCommand::Kind::kRevive},
    {"drop-data", FaultCommand::Kind::kDropData},
    {"drop-acks", FaultCommand::Kind::kDropAcks},
    {"gid-change", FaultCommand::Kind::kGidChange},
    {"gid-restore", FaultCommand::Kind::kGidRestore},
    {"heal", FaultCommand::Kind::kHeal},
    {"flap", FaultCommand::Kind::kFlap},
    {"slow-commands", FaultCommand::Kind::kSlowCommands},
    {"hang-commands", FaultCommand::Kind::kHangCommands},
    {"slow", FaultCommand::Kind::kSlow},
    {"cut", FaultCommand::Kind::kCut},
    {"power-off", FaultCommand::Kind::kPowerOff},
    {"power-on", FaultCommand::Kind::kPowerOn},
    {"loss", FaultCommand::Kind::kLoss},
    {"delay", FaultCommand::Kind::kDelay},
    {"reorder", FaultCommand::Kind::kReorder},
    {"duplicate", FaultCommand::Kind::kDuplicate},
    {"corrupt", FaultCommand::Kind::kCorrupt},
};

struct OpWord {
  const char* text;
  uint8_t ops;
};
inline constexpr OpWord kOpWords[] = {
    {"send", kOpSend},
    {"write", kOpWrite},
    {"read", kOpReadRequest | kOpReadResponse},
    {"atomic", kOpAtomicRequest | kOpAtomicResponse},
    {"ack", kOpAck},
    {"nak", kOpNak},
};

inline constexpr const char* kTickWords[] = {"packet", "wqe", "cqe"};  // by FaultTick

inline bool fault_is_about_packets(FaultCommand::Kind kind) {
  return kind >= FaultCommand::Kind::kLoss;
}

inline bool fault_is_of_host(FaultCommand::Kind kind) {
  return kind == FaultCommand::Kind::kCut || kind == FaultCommand::Kind::kPowerOff ||
         kind == FaultCommand::Kind::kPowerOn;
}

}  // namespace cxemu
