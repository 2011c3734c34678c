#include "advice.h"

namespace shift::ctl {

namespace {

// The first row whose reason is a part of the text counts, so narrower rows come first.
constexpr Advice kAdvice[] = {
    // Why a QP is not protected.
    {"no SHIFT at the peer", "no-shift-at-peer",
     "Nobody listens at the rendezvous port of the peer's address, so nobody could prove that it "
     "owns the other QP.",
     "Run the peer's program with SHIFT (shift-system status there), and give all hosts of the job "
     "the same SHIFT_PORT and the same key."},
    {"the peer cannot be reached", "peer-unreachable",
     "The peer's rendezvous port gave no answer that could prove who owns the other QP.",
     "Let TCP to the rendezvous port pass between the NICs' addresses (nc -vz -s OWN PEER 9473), "
     "and run one version of SHIFT and one key on both hosts."},
    {"no process of the peer's host owns the QP", "no-such-qp",
     "The peer's host has SHIFT, and none of its processes has proved that it owns the other QP.",
     "Look whether the address belongs to one host only and is not translated (NAT) on the way; "
     "raise SHIFT_RENDEZVOUS_MS if the other end connects late."},
    {"nobody has asked for this QP", "not-asked",
     "The peer has to ask for this QP, and has not done so.",
     "Look at the peer: it has no SHIFT, or it cannot reach this host."},
    {"nobody says where", "no-gid-answer",
     "The peer's GID holds no IPv4 address, or is not to be dialed, and neither the broadcast that "
     "looks for it nor the redis server has named one.",
     "Choose a GID index with an IPv4 address (ibv_devinfo -v), or let UDP to and from the "
     "rendezvous port pass, or see whether the peer reaches the server of SHIFT_RENDEZVOUS."},
    {"of its GID has no IPv4 address", "no-ipv4-address",
     "This end has no IPv4 address from which it could ask for the peer.",
     "Give the NIC's network device an IPv4 address; connections on InfiniBand are not protected."},
    {"does not prove that it owns the QP", "not-proven",
     "A process was found, and its start PSNs do not fit those of the other QP.",
     "Raise SHIFT_RENDEZVOUS_MS if the two ends connect many seconds apart or reset their QPs."},
    {"the peer refuses", "peer-refuses", "The peer's process refuses to speak with this one.",
     "Run the same build of SHIFT on both hosts."},
    {"the key file", "key-file",
     "The job's key file cannot be used, so the process runs as without SHIFT.",
     "Look at SHIFT_KEY_FILE, and at docs/troubleshooting.md, job keys."},
    {"only RC is protected", "not-rc", "Only QPs of the type RC are protected.",
     "Have the program use RC, as UCX_TLS=rc does."},
    {"CQ cannot grow", "cq-too-small",
     "The completion queue has no room for all that the QP may flush, and the NIC cannot resize "
     "it.",
     "Have the program make a larger completion queue."},
    {"needs a send and a receive CQ", "no-cq", "The QP has no completion queue of its own.",
     "Have the program give the QP both completion queues."},
    {"shared receive queue", "shared-queue",
     "The shared receive queue serves QPs that are not protected.",
     "Have the program give protected QPs a queue of their own."},
    // Why a device is not protected.
    {"no partner", "no-partner", "No other NIC of the host stands in for this one.",
     "Add it to SHIFT_PAIRS, or give the container the second NIC."},
    {"cannot be opened", "partner-not-opened", "The NIC that should stand in cannot be opened.",
     "Look whether /dev/infiniband has it, and whether the job may open it (ulimit -n)."},
    // Why a second path is missing.
    {"peer has one NIC only", "peer-has-one-nic", "The peer has no second NIC to go on over.",
     "Look at SHIFT_PAIRS at the peer, or give its container the second NIC."},
    {"an operator has drained", "drained", "The other NIC was drained, so no path leads over it.",
     "End the maintenance with shiftctl undrain."},
    {"drained", "drained", "The other NIC was drained, so no path leads over it.",
     "End the maintenance with shiftctl undrain."},
    {"the peer's port is down", "peer-port-down", "The peer's other NIC carries no traffic.",
     "Bring that port up at the peer, and give it an IPv4 address."},
    {"port is down", "port-down", "The other NIC carries no traffic.",
     "Bring its port up and give its network device an IPv4 address (ibv_devinfo, ip -4 address)."},
    {"no queue pair could be made", "no-qp-there", "No QP could be made on the other NIC.",
     "Look for the line \"no QP there\" in the program's log; memory and descriptors may be "
     "short."},
    {"nothing passes from the peer", "nothing-passes-back",
     "The probe of the second path came through, and the peer's did not.",
     "Look at the way back: several NICs in one subnet need source routing."},
    {"nothing passes", "nothing-passes", "The probe of the second path did not come through.",
     "Look at cabling, VLAN, routing and MTU between the two NICs, and at UDP port 4791 (ping -I "
     "OWN PEER)."},
    {"cannot be connected", "cannot-connect", "The other NIC refuses the connection.",
     "Run the program with SHIFT_LOG=debug; the line has the error."},
    {"this end has no address there", "no-address",
     "The other NIC has no GID with an IPv4 address.", "Give its network device an IPv4 address."},
    {"the peer cannot use it", "peer-cannot-use", "The peer refuses the second path.",
     "Look at the peer's log."},
    {"the peer cannot be asked", "peer-silent", "The peer has not answered about a second path.",
     "Look whether the peer's process lives and can be reached."},
    {"the peer does not answer", "peer-silent", "The peer has not answered about a second path.",
     "Look whether the peer's process lives and can be reached."},
    {"does not answer commands", "nic-late", "The NIC's driver or firmware does not answer.",
     "Look at the kernel's log."},
    {"the peer leads", "peer-leads",
     "The other end makes the paths, and has not made a second one.",
     "Ask shiftctl explain at the peer."},
    {"it has not been tried yet", "not-tried-yet", "The second path has not been tried yet.",
     "Wait some seconds."},
    // Why a QP has failed.
    {"no path was found in time", "no-path-in-time",
     "No path between the hosts was left for as long as the requests could wait.",
     "Look for QPs with one path only before a fault; raise SHIFT_EXCHANGE_MS if such outages "
     "pass."},
    {"none of them carries the requests", "no-path-carries",
     "Probes pass on the paths, and the requests do not.",
     "Set the same MTU on all ways, and look for a broken NIC."},
    {"could not be proven shut", "fence-failed", "The old path was not proven to be shut.",
     "Look at the kernel's log: the old NIC's firmware may hang."},
    {"atomic", "atomic", "Nothing proves whether an atomic or a WRITE was executed.",
     "SHIFT_MODE=auto or exact at both ends repeats atomics safely, and has a price "
     "(docs/trilemma.md)."},
    {"key", "key-missing", "A memory region is not known on the other NIC.",
     "Raise the limit of locked memory: each region counts once for each NIC (ulimit -l)."},
    {"window", "window", "Memory windows belong to one NIC.",
     "There is no help but to do without them."},
    {"the peer cannot move this QP", "peer-failed", "The peer has failed, and says why in its log.",
     "Look at the peer's log."},
    {"", "other", "The reason is not one that shiftctl knows.",
     "Look at docs/troubleshooting.md and at the program's log."},
};

}  // namespace

std::span<const Advice> all_advice() {
  return kAdvice;
}

const Advice& advice_for(std::string_view reason) {
  for (const Advice& advice : kAdvice)
    if (reason.find(advice.reason) != std::string_view::npos) return advice;
  return kAdvice[std::size(kAdvice) - 1];
}

}  // namespace shift::ctl
