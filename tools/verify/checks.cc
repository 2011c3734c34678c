// All checks, in the order in which they run.
#include <cstring>

#include "topics.h"

namespace shift::verify {
namespace {

const std::vector<Check> kPairingChecks = {
    {"pairing", "pairing", Scope::kHost, 20,
     "the host has two NICs that are alike and do not fail together",
     "Without a partner a NIC is not protected. Partners on one card share its faults, and one "
     "with "
     "less speed slows a job down after a fault.",
     "Name the NICs that shall back each other in SHIFT_PAIRS (shift.conf(5)).", check_pairing,
     nullptr, nullptr},
};

const std::vector<Check> kSystemChecks = {
    {"membarrier", "system", Scope::kHost, 20, "membarrier(2) has private expedited barriers",
     "Failover works, but every post and poll takes a lock.",
     "Use a kernel from 4.14 on, and let the container's seccomp filter pass membarrier(2).",
     check_membarrier, nullptr, nullptr},
    {"link-watch", "system", Scope::kHost, 20,
     "libnl-3 is there, and the NICs' network devices have carriers",
     "Without libnl-3 a pulled cable is noticed by the driver's event or by retries only. A device "
     "without a carrier is not used.",
     "Install libnl-3 (Debian: libnl-3-200); plug the cable in, or set the device up.",
     check_link_watch, nullptr, nullptr},
    {"locked-memory", "memory", Scope::kHost, 20,
     "each region can be registered on each NIC of its group",
     "The program's own registration succeeds and the one for the backup fails: its queue pairs "
     "have "
     "no second path, and a fault is not masked.",
     "Raise RLIMIT_MEMLOCK (ulimit -l, LimitMEMLOCK= of the service, the container's ulimits).",
     check_locked_memory, nullptr, nullptr},
    {"registration", "memory", Scope::kNic, 60,
     "a NIC registers memory within SHIFT_COMMAND_MS, plus what its size needs",
     "A NIC that takes longer counts as one that hangs. Until all memory is registered on the "
     "backup, a fault is not masked.",
     "Use huge pages, fewer and larger regions, or raise SHIFT_COMMAND_MS.", check_registration,
     nullptr, nullptr},
};

const std::vector<Check> kNetworkChecks = {
    {"port", "network", Scope::kNic, 30, "the NIC's port is active, and Ethernet",
     "No path goes over a port that is down. On InfiniBand, peers cannot be found.",
     "Look at the cable, the switch and `rdma link`.", check_port, nullptr, nullptr},
    {"address", "network", Scope::kNic, 30,
     "the NIC has a RoCE v2 GID with an IPv4 address that this host holds",
     "The peer's process is looked for at the address that its GID holds. Without one it is looked "
     "for by broadcast, in the same subnet only, and otherwise nothing is protected.",
     "Give the NIC's network device an IPv4 address (in this container's network namespace, too).",
     check_address, nullptr, nullptr},
    {"subnets", "network", Scope::kHost, 20,
     "replies leave through the NIC whose address they have",
     "With two NICs in one subnet the kernel may send everything through one of them. Then a fault "
     "of this NIC cuts the control connections of both.",
     "Set up source routing (ip rule, one table for each NIC), arp_ignore=1 and arp_announce=2, or "
     "use a subnet for each rail; then look at the check control-channel between two hosts.",
     check_subnets, nullptr, nullptr},
    {"rendezvous-port", "network", Scope::kHost, 20,
     "programs can listen at SHIFT_PORT of each NIC's address",
     "Peers do not find each other's processes, and no queue pair is protected.",
     "Let TCP and UDP to this port pass (contrib/ has rules for firewalls), or set another "
     "SHIFT_PORT "
     "on all hosts of the job.",
     check_listen, nullptr, nullptr},
    {"control-channel", "network", Scope::kHosts, 30,
     "TCP at SHIFT_PORT goes from each NIC's address here to each one there, within 100 ms",
     "The ends do not find each other, or lose each other together with a NIC: a fault is not "
     "masked.",
     "Look at firewalls, routes, and source routing (see the check subnets); set one SHIFT_PORT "
     "for "
     "all hosts.",
     nullptr, ask_control, answer_control},
    {"path", "network", Scope::kPath, 60,
     "each NIC here reaches each NIC there, with packets of the port's MTU",
     "A path that does not carry packets is no backup: with a straight path missing there is no "
     "second path, with one across rails missing two faults at once are not masked.",
     "Look at routes between the rails, at VLANs and at the MTU of every switch on the way.",
     nullptr, ask_path, answer_path},
};

const std::vector<Check> kFenceChecks = {
    {"flush-all", "fence", Scope::kNic, 30,
     "a QP in ERR gives one error completion for each request that it has not completed, in order, "
     "also for those without a signal",
     "The layer tells by the flushes whether an atomic without a signal was done before a fault. "
     "One "
     "that was not done would count as done (a wrong success), or one that was done would end in "
     "the "
     "original error. Other requests do not depend on it.",
     "Update the driver or firmware, and report what was seen. Until then use the layer on this "
     "NIC "
     "only for programs without atomics.",
     check_flush_all, nullptr, nullptr},
    {"marker-last", "fence", Scope::kNic, 30,
     "a request that is posted in ERR is flushed after everything before it",
     "A completion would come after the fence and count for nothing: a message may be executed "
     "twice, or the fence may not be proven, and the program gets its error.",
     "Do not use the layer on this driver or firmware; update them, and report what was seen.",
     check_marker_last, nullptr, nullptr},
    {"err-shuts", "fence", Scope::kNic, 30, "a QP in ERR takes nothing from its peer any more",
     "The old path could still write to memory after the new one has: data would be wrong, and "
     "nothing would tell.",
     "Do not use the layer on this driver or firmware; update them, and report what was seen.",
     check_err_shuts, nullptr, nullptr},
    {"error-event", "fence", Scope::kNic, 30,
     "an error completion wakes a thread that has armed its queue for solicited events only",
     "A fault would be noticed only when the program polls.",
     "Update the driver; do not use the layer on it.", check_error_event, nullptr, nullptr},
};

const std::vector<Check> kResponderChecks = {
    {"rq-psn", "responder", Scope::kNic, 30,
     "ibv_query_qp tells in ERR how many packets the QP has executed (rq_psn)",
     "SHIFT_MODE=exact and auto would repeat what was executed, or leave out what was not. The "
     "default mode does not need it.",
     "Leave SHIFT_MODE as it is by default; update the driver or firmware.", check_rq_psn, nullptr,
     nullptr},
    {"last-wqe", "responder", Scope::kNic, 30,
     "the event LAST_WQE_REACHED comes when a QP on a shared receive queue enters ERR",
     "The fence of queue pairs with a shared receive queue is never proven, and their programs get "
     "an error at each fault.",
     "Update the driver; do not use shared receive queues with the layer on it.", check_last_wqe,
     nullptr, nullptr},
    {"write-order", "responder", Scope::kRail, 60,
     "a WRITE with immediate completes at the receiver after all data before it, and in order",
     "The layer counts notifications to know what was executed. With another order it would leave "
     "out data that did not arrive.",
     "Forbid relaxed ordering and out-of-order delivery for these QPs (adaptive routing with "
     "reordering receivers); report what was seen.",
     nullptr, ask_write_order, answer_write_order},
};

const std::vector<Check> kLifeChecks = {
    {"reconnect", "life", Scope::kNic, 60,
     "a QP can be taken from ERR through RESET back to RTS, soon and again and again",
     "A path that broke once would never be used again, or each switch would take long.",
     "Update the driver or firmware; where commands are slow only, raise SHIFT_COMMAND_MS.",
     check_reconnect, nullptr, nullptr},
    {"new-psn", "life", Scope::kNic, 30,
     "a QP that is connected again takes its new start PSN, and no packet of the old connection",
     "A late packet of an old path could be executed on the new one: data would be wrong.",
     "Do not use the layer on this driver or firmware; update them, and report what was seen.",
     check_new_psn, nullptr, nullptr},
    {"commands", "life", Scope::kNic, 60,
     "the NIC answers each command within SHIFT_COMMAND_MS, and usually in a moment",
     "A NIC that answers later counts as one that hangs, and no new path goes over it.",
     "Raise SHIFT_COMMAND_MS; look for what keeps the firmware busy.", check_commands, nullptr,
     nullptr},
    {"cq-resize", "life", Scope::kNic, 30,
     "a completion queue can be made larger, with what is in it",
     "A QP whose program made its queue just large enough has no room for the fence's completions, "
     "and is not protected.",
     "Have programs make completion queues as large as all requests of their QPs.", check_cq_resize,
     nullptr, nullptr},
    {"patience", "life", Scope::kNic, 60,
     "a request without an answer fails within four times the timeout that was asked for",
     "A NIC that waits longer notices lost packets late: programs stand still for as long.",
     "Lower SHIFT_RC_TIMEOUT_MAX; on ConnectX switch adaptive retransmission off.", check_patience,
     nullptr, nullptr},
};

const std::vector<Check> kWholeChecks = {
    {"cost", "cost", Scope::kNic, 120, "a post and a poll cost about the same with the layer",
     "Programs that post many small requests become slower, though no fault happens.",
     "See the check membarrier; report what was seen.", check_cost, nullptr, nullptr},
    {"failover", "failover", Scope::kRail, 180,
     "traffic survives a QP that breaks, moves to the other NIC and comes back, and no byte is "
     "wrong",
     "A fault of this NIC would not be masked.",
     "Look at the lines above first. Then run the program that fails with SHIFT_LOG=info, and see "
     "docs/troubleshooting.md.",
     nullptr, ask_failover, answer_failover},
    {"link-down", "failover", Scope::kRail, 180,
     "traffic survives a link that goes down, and comes back when it is up",
     "A pulled cable of this NIC would not be masked.",
     "Look at the lines above first. Then run the program that fails with SHIFT_LOG=info, and see "
     "docs/troubleshooting.md.",
     nullptr, ask_link_down, answer_failover},
};

}  // namespace

const std::vector<Check>& checks() {
  static const std::vector<Check> all = [] {
    std::vector<Check> made;
    for (const auto* topic : {&kPairingChecks, &kSystemChecks, &kNetworkChecks, &kFenceChecks,
                              &kResponderChecks, &kLifeChecks, &kWholeChecks})
      made.insert(made.end(), topic->begin(), topic->end());
    return made;
  }();
  return all;
}

const Check* check_find(const std::string& name) {
  for (const Check& check : checks()) {
    if (name == check.name) return &check;
  }
  return nullptr;
}

}  // namespace shift::verify
