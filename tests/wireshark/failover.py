#!/usr/bin/python3
"""Records the control channel of a job that leaves its NIC and comes home, and compares what Wireshark's dissector
shows of it with what the layer tells of itself.

The test `wireshark_failover` calls this program. Without a job key the dissector must show the frames that another
reader finds in the same capture, and in them the queue pairs, epochs, paths and reasons of the event records. With
a key it must show sealed frames, the id of the key, and nothing else. Where GIDs hold no address, it must show who
asks for them, and who answers.

It runs in a network namespace of its own, since it needs the right to listen, where one can be made. Where nobody
may listen, or tshark is not installed, it exits with 77 and says why.
"""

import collections
import copy
import os
import shutil
import sys

from harness.build import Build
from harness.checker import ENDS, report_of, report_option
from harness.devices import main_inside
from harness.fabric import Fabric
from harness.options import script_parser

from e2e import wire
from e2e.checker_pair import CheckerPair
from e2e.key_files import KeyFiles

from wireshark import header, tshark

# What a job says that leaves its NIC and comes home.
SAID = ("hello", "hello_reply", "confirm", "bind", "offer", "accept", "ready", "members", "drain", "switch",
        "progress", "key_query", "key_reply", "close")


class Failure(Exception):
    """Says in one line what was wrong."""


def expect(is_right, what):
    if not is_right:
        raise Failure(what)


class Job:
    """What one run left: its capture, as two readers see it, and what both ends told."""

    def __init__(self, build, directory, env, both=()):
        os.makedirs(directory)
        with Fabric(build, directory) as fabric:
            recorder = wire.Wire(fabric)
            self.problem = recorder.problem
            if not self.problem:
                self._run(fabric, recorder, env, both)

    def _run(self, fabric, recorder, env, both):
        traffic = CheckerPair(fabric, report_option(fabric, "client"), env, both=both)
        fabric.fault("a/mlx5_0", "link-down")
        traffic.moved("the link of a NIC is down", "mlx5_1")
        fabric.fault("a/mlx5_0", "link-up")
        traffic.moved("the link is up", "mlx5_0")
        traffic.end()
        recorder.end()
        self.nics = {nic["address"] for nics in fabric.hosts().values() for nic in nics.values()}
        self.records = {kind: {end: fabric.records(kind, end) for end in ENDS}
                        for kind in ("bound", "switched")}
        self.progress = report_of(fabric.directory, "client")["progress"]
        self.path = recorder.path
        self.connections = recorder.connections()
        self.seen = tshark.Seen(self.path)


def frames_compare(job):
    """Both readers find the same frames between the same addresses. Wireshark also shows what was sent again."""
    shown = collections.defaultdict(list)
    for one in job.seen.messages:
        if one.is_again or one.is_datagram:
            continue
        shown[one.way[0], one.way[2], one.get("length"), one.get("sequence")].append(one.get("type"))
    other = collections.defaultdict(list)
    for one in job.connections:
        ends = one.dialer, one.listener
        for source, target, data in ((*ends, one.asked), (*ends[::-1], one.answered)):
            at = 0
            for frame in wire.frames_of(data):
                length, sequence = wire.HEADER.unpack_from(data, at)[4:]
                other[source, target, length, sequence].append(frame.type)
                at += length
    expect(shown == other, "the readers differ in %s" % [
        (key, shown.get(key), other.get(key)) for key in sorted(set(shown) | set(other))
        if shown.get(key) != other.get(key)][:3])
    return sum(map(len, other.values()))


def qp(message, name):
    gid = message.all(name + ".gid")[0].show
    return gid.replace("::ffff:", ""), message.get(name + ".qpn")


def ends_compare(job, types):
    """Each end's queue pairs and those of its peer, and the addresses of their NICs."""
    told = {end: {(one["qp"], one["peer_qp"]) for one in job.records["bound"][end]} for end in ENDS}
    binds = job.seen.kind(types["bind"])
    said = {(qp(one, "from")[1], qp(one, "to")[1]) for one in binds}
    expect(said == told["client"] | told["server"], "Binds of %s, and both ends told of %s" % (said, told))
    addresses = {qp(one, name)[0] for one in binds for name in ("from", "to")}
    members = {field.show.replace("::ffff:", "") for one in binds for field in one.all("member")}
    expect(members == job.nics, "Binds name the NICs %s of %s" % (members, job.nics))
    expect(addresses < job.nics and len(addresses) == 2, "queue pairs at %s" % addresses)


def rounds_compare(job, types):
    """The epochs in which each queue pair changed its path, where it went, and why. Returns how many rounds."""
    progress = collections.defaultdict(list)
    for one in job.seen.kind(types["progress"]):
        progress[qp(one, "from")[1], one.get("epoch")].append(one)
    switches = collections.defaultdict(set)
    for one in job.seen.kind(types["switch"]):
        both = frozenset((qp(one, "from")[1], qp(one, "to")[1]))
        switches[both, one.get("epoch")].add(one.get("switch.reason"))
    rounds = {}
    for end in ENDS:
        for one in job.records["switched"][end]:
            rounds[one["qp"], one["epoch"]] = one
    expect(set(rounds) == set(progress), "Progress of %s, and the records have %s" % (
        sorted(progress), sorted(rounds)))
    peers = {one["qp"]: one["peer_qp"] for end in ENDS for one in job.records["bound"][end]}
    for (number, epoch), record in rounds.items():
        one = progress[number, epoch][0]
        is_leader = qp(one, "from") < qp(one, "to")
        own, other = ("leader", "follower") if is_leader else ("follower", "leader")
        target = "mlx5_%d" % one.get("progress.target." + own), one.get("progress.target." + other)
        wanted = record["member"], record["peer_member"]
        expect(target == wanted, "epoch %d leads to %s, and the record has %s" % (epoch, target, wanted))
        both = {rounds[end, epoch]["detector"] for end in (number, peers[number])}
        reasons = switches[frozenset((number, peers[number])), epoch]
        expect(reasons == {1 if "probe" in both else 0}, "epoch %d has the reasons %s, and was noticed by %s" % (
            epoch, reasons, both))
    return len(rounds)


def counters_compare(job, types):
    """No end has received more notifications than the program has sent messages, and none fewer than before."""
    counts = collections.defaultdict(dict)
    for one in job.seen.kind(types["progress"]):
        counts[qp(one, "from")[1]][one.get("epoch")] = one.get("progress.notifications_received")
    for number, by_epoch in counts.items():
        row = [by_epoch[epoch] for epoch in sorted(by_epoch)]
        expect(row == sorted(row) and row[-1] > row[0], "qp 0x%x received %s" % (number, row))
        expect(row[-1] <= job.progress, "qp 0x%x received %s, of %d messages" % (number, row, job.progress))


def keys_compare(job, types):
    """Each answer repeats the number and keys of a question."""
    asked = {}
    for one in job.seen.kind(types["key_query"]):
        asked[qp(one, "from"), one.get("query_id")] = {field.number() for field in one.all("rkey")}
    for one in job.seen.kind(types["key_reply"]):
        keys = {field.number() for field in one.all("rkey")}
        expect(keys and keys <= asked.get((qp(one, "to"), one.get("query_id")), set()), "an answer to no question")
        expect(all(field.number() == 1 for field in one.all("found")), "a key is not found")


def clear_judge(job, types, _):
    frames = frames_compare(job)
    kinds = {one.get("type") for one in job.seen.messages}
    kinds -= {types["probe"]}  # ways for probes are made a second later
    expect(kinds == {types[name] for name in SAID}, "it shows the types %s" % sorted(kinds))
    ends_compare(job, types)
    rounds = rounds_compare(job, types)
    counters_compare(job, types)
    keys_compare(job, types)
    rows, _ = tshark.fields(job.path, tshark.SCRIPT, "shift.type == %d" % types["switch"], "shift.epoch")
    epochs = {one["epoch"] for end in ENDS for one in job.records["switched"][end]}
    expect(epochs <= {int(epoch) for row in rows for epoch in row[0].split(",")}, "a filter finds %s" % rows)
    return "%d frames, %d rounds" % (frames, rounds)


def sealed_judge(job, types, key_id):
    frames = frames_compare(job)
    handshake = {types[name] for name in ("hello", "hello_reply", "confirm")}
    sealed = [one for one in job.seen.messages if one.get("flags") == 1]
    clear = [one for one in job.seen.messages if one.get("flags") == 0]
    expect({one.get("type") for one in clear} == handshake, "it shows in clear: %s" % {one.text for one in clear})
    hellos = [one for one in clear if one.get("type") == types["hello"]]
    expect({one.get("key") for one in hellos} == {key_id}, "a Hello with another key")
    expect({one.get("key_id") for one in sealed} == {key_id}, "a frame is sealed with another key")
    kinds = {one.get("type") for one in sealed}
    expect({types[name] for name in SAID} - handshake <= kinds, "it shows the types %s" % sorted(kinds))
    for one in sealed:
        names = {field.name for field in one.fields}
        expect(not any(name.startswith(("shift.from", "shift.to", "shift.epoch")) for name in names) and
               "shift.sealed" in names, "a sealed frame is shown with %s" % sorted(names))
    expect({one.way[3] if one.way[3] < 32768 else one.way[1] for one in sealed} == {wire.key_port(key_id)},
           "another port than the key's")
    return "%d frames, %d of them sealed" % (frames, len(sealed))


def hints_judge(job, types, _):
    """Queue pairs whose GIDs hold no address: their hosts are asked for by datagrams."""
    frames = frames_compare(job)
    questions, answers = job.seen.kind(types["gid_query"]), job.seen.kind(types["gid_answer"])
    expect(all(one.is_datagram for one in questions + answers), "a question or an answer goes by TCP")
    asked = {(one.get("gid_nonce"), one.all("gid")[0].show) for one in questions}
    expect(asked and answers, "nobody asks for a GID, or nobody answers")
    told = collections.defaultdict(set)
    for one in answers:
        gid = one.all("gid")[0].show
        expect((one.get("gid_nonce"), gid) in asked, "an answer to no question")
        told[gid].add(one.all("gid_answer.address")[0].show.replace("::ffff:", ""))
    expect(set().union(*told.values()) <= job.nics, "the answers name %s" % told)
    for one in job.seen.kind(types["hello"]):
        gid = one.all("want.gid")[0].show
        # On a channel, which has a count, a Hello goes to all addresses of the peer.
        is_search = one.get("want.qpn") != 0 and one.get("sequence") == 0
        expect(not is_search or one.way[2] in told[gid], "a Hello for %s goes to %s" % (gid, one.way[2]))
    return "%d frames, %d questions, %d answers" % (frames, len(questions), len(answers))


# What either end might have told, were it not as it is; each must be noticed.
def other_record(kind, name, value):
    def change(job):
        for end in ENDS:
            for record in job.records[kind][end]:
                record[name] = value
    return change


TAMPERED = {
    "a queue pair": other_record("bound", "qp", 0x123),
    "an epoch": other_record("switched", "epoch", 7),
    "a member": other_record("switched", "member", "mlx5_2"),
    "a peer's member": other_record("switched", "peer_member", 0),
    "a cause": other_record("switched", "detector", "probe"),
    "the messages of the program": lambda job: setattr(job, "progress", 0),
    "the addresses": lambda job: setattr(job, "nics", {"127.0.0.1"}),
    "a frame": lambda job: job.connections.pop(),
}


def tampered_judge(job, types, path):
    """The comparison notices each thing in which both sides differ."""
    for name, change in TAMPERED.items():
        other = copy.deepcopy(job)
        change(other)
        try:
            clear_judge(other, types, path)
        except Failure:
            continue
        raise Failure("the comparison does not notice %s that is another" % name)


def run(options):
    if why := tshark.missing():
        print("SKIPPED: %s" % why)
        return 77
    shutil.rmtree(options.out, ignore_errors=True)
    os.makedirs(options.out)
    build = Build(options.build)
    build.require(build.shift_run, build.traffic)
    types = header.read().types()
    keys = KeyFiles(build, os.path.join(os.path.abspath(options.out), "keys"))
    path, taken = keys.make("job"), tshark.taken_ports()
    while wire.key_port(keys.ids["job"]) in taken:
        os.remove(path)
        path = keys.make("job")
    for name, judge, *how in (("clear", clear_judge, {}), ("sealed", sealed_judge, {"SHIFT_KEY_FILE": path}),
                              ("hints", hints_judge, {}, ["--gid-index", "1"])):
        job = Job(build, os.path.join(options.out, name), *how)
        if job.problem:
            print("SKIPPED: nobody listened on the wire: %s" % job.problem)
            return 77
        try:
            expect(not job.seen.errors, "tshark says %s" % job.seen.errors[:3])
            blamed = {one.text: one.experts for one in job.seen.messages if one.experts}
            expect(not blamed, "it complains about %s" % blamed)
            print("right  %s: %s" % (name, judge(job, types, keys.ids["job"])), flush=True)
            if judge is clear_judge:
                tampered_judge(job, types, None)
        except Failure as failure:
            print("FAILED %s: %s" % (name, failure))
            return 1
    shutil.rmtree(options.out)
    return 0


def main():
    return main_inside(script_parser(__doc__, "out/wireshark"), run)


if __name__ == "__main__":
    sys.exit(main())
