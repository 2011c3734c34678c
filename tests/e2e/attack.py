#!/usr/bin/python3
"""Strangers attack a job that runs, fails over and comes back; with a key also from the addresses of its own NICs.

The test `e2e_attack` calls this program. While a crowd connects without pause, replays and changes what the job
has said, and is silent, the job is moved by a fault as if nobody was there, a second job meets, and nothing that
the strangers hear is more than a denial. A process grows by 64 descriptors and 8 MB at most.

It runs in a network namespace of its own, where one can be made, and needs tcpdump to know what the job says.
With --layer, which names one with planted bugs, these must be noticed, too (`planted_attack`).
"""

import os
import shutil
import sys
import time

from harness.build import Build
from harness.devices import main_inside
from harness.fabric import Fabric
from harness.options import layer_add, script_parser, seed_add

from e2e import wire
from e2e.crowd import Crowd, Footprint
from e2e.keys import Failure, Pair, expect
from e2e.key_files import KeyFiles

# A process accepts a few connections before it closes others.
DESCRIPTORS_MOST = 64 + 8
MEMORY_MOST = 8 << 20
CONNECTIONS_LEAST = 500
STATUS_AT = 104  # in the body of a HelloReply: instance, public key, nonce and two names of QPs come before
SETTINGS = {"SHIFT_FAILBACK_MS": "200"}
# planted bug: (whether the job has a key, what must be said of it)
PLANTS = {
    "address_not_asked": (False, "a stranger was answered yes"),
    "proof_not_checked": (True, "a stranger heard a message of type"),
}


def addresses_of(fabric, host):
    return [nic["address"] for nic in fabric.hosts()[host].values()]


def denials_expect(crowd, may_greet):
    """Strangers hear nothing but denials; with a key, whoever repeats a Hello is answered, and no more."""
    for frame in crowd.frames():
        expect(frame.type == wire.HELLO_REPLY, "a stranger heard a message of type %d" % frame.type)
        expect(may_greet or frame.body[STATUS_AT] == 1, "a stranger was answered yes")
        expect(may_greet or not any(frame.body[:16]), "a stranger was told who the process is")


def events_expect(fabric, pair):
    for name in pair.names:
        expect(len(fabric.records("switched", name)) == 2, "%s did not switch twice" % name)
        for kind in ("failed", "unprotected"):
            expect(not fabric.records(kind, name), "%s: %s" % (name, kind))


def freed_is_given_back():
    """The address sanitizer keeps what was freed, up to 256 MB, so that a footprint would count each stranger."""
    given = os.environ.get("ASAN_OPTIONS", "")
    return {"ASAN_OPTIONS": given + ":quarantine_size_mb=1:thread_local_quarantine_size_kb=64"}


def run(fabric, key, seed, env):
    env = {**SETTINGS, **freed_is_given_back(), "SHIFT_STATE_DIR": fabric.directory, **env}
    recorder = wire.Wire(fabric)
    if recorder.problem:
        return recorder.problem
    pair = Pair(fabric, (key, key), env=env)
    pair.armed()
    pair.goes_on()
    recorder.end()
    known = [said for one in recorder.connections() for said in (one.asked, one.answered) if said]
    expect(known, "the job was not heard")
    ports = {one.port for one in recorder.connections()}
    own = addresses_of(fabric, "a") + addresses_of(fabric, "b")
    net = own[0].rsplit(".", 2)[0]
    # Without a key, another process at the address of a NIC is not held off (docs/security.md).
    sources = ["%s.200.%d" % (net, n) for n in range(1, 101)] + (own * 20 if key else [])
    crowd = Crowd([(address, port) for address in own for port in ports], sources, known, seed)
    sizes = [Footprint(one.process.pid) for one in pair.ends.values()]
    crowd.start()
    try:
        pair.goes_on(500)
        fabric.fault("a/mlx5_0", "link-down")
        pair.moved("mlx5_1")
        fabric.fault("a/mlx5_0", "link-up")
        pair.moved("mlx5_0")
        begun = time.monotonic()
        second = Pair(fabric, (key, key), "second-", env)
        second.armed()
        took = time.monotonic() - begun
        second.goes_on()
        codes = second.stop()
        expect(codes == (0, 0), "the second job ended with %s and %s" % codes)
        pair.goes_on(500)
    finally:
        crowd.end()
    grown = [one.end() for one in sizes]
    codes = pair.stop()
    expect(codes == (0, 0), "client and server ended with %s and %s" % codes)
    events_expect(fabric, pair)
    denials_expect(crowd, may_greet=key is not None)
    expect(crowd.connections >= CONNECTIONS_LEAST, "there were %d strangers only" % crowd.connections)
    expect(key or crowd.answers, "no stranger was heard")
    for descriptors, memory in grown:
        expect(descriptors <= DESCRIPTORS_MOST, "a process took %d descriptors more" % descriptors)
        expect(memory <= MEMORY_MOST, "a process took %d bytes more" % memory)
    print("right  %s: %d strangers; %d descriptors and %d KiB more at most; a second job met in %.1f s" % (
        "with a key" if key else "without a key", crowd.connections, max(one[0] for one in grown),
        max(one[1] for one in grown) >> 10, took), flush=True)
    return ""


def cases(options):
    """The name of each run, whether its job has a key, its environment, and what must be said of it."""
    for is_keyed in (False, True):
        yield ("keyed" if is_keyed else "keyless"), is_keyed, {"SHIFT_PLANT": "none"}, ""
    if options.layer:
        for bug, (is_keyed, wanted) in PLANTS.items():
            yield bug, is_keyed, {"SHIFT_PLANT": bug}, wanted


def run_all_cases(options):
    shutil.rmtree(options.out, ignore_errors=True)
    os.makedirs(options.out)
    build = Build(options.build, options.layer)
    build.require(build.shift_run, build.traffic)
    key = KeyFiles(build, os.path.join(os.path.abspath(options.out), "keys")).make("job")
    print("seed %d" % options.seed, flush=True)
    for name, is_keyed, env, wanted in cases(options):
        directory = os.path.join(options.out, name)
        os.makedirs(directory)
        said = ""
        with Fabric(build, directory) as fabric:
            try:
                unheard = run(fabric, key if is_keyed else None, options.seed, env)
            except Failure as failure:
                said, unheard = str(failure), ""
        if unheard:
            print("SKIPPED: nobody listened on the wire: %s" % unheard)
            return 77
        if bool(said) != bool(wanted) or wanted not in said:
            print("FAILED %s: %s" % (name, said or "the planted bug was not noticed"))
            return 1
        if wanted:
            print("right  %s, planted: %s" % (name, said), flush=True)
    shutil.rmtree(options.out)
    return 0


def main():
    parser = script_parser(__doc__, "out/attack")
    seed_add(parser)
    layer_add(parser)
    return main_inside(parser, run_all_cases)


if __name__ == "__main__":
    sys.exit(main())
