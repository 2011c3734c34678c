"""Cases of UCX: what it sees, its own benchmarks on each transport, and its demonstration, which verifies data."""

import re

from harness.case import Case, Failure, expect
from harness.ports import free_port

DEVICE = "mlx5_0:1"
LOUD = {"UCX_WARN_UNUSED_ENV_VARS": "n", "UCX_LOG_LEVEL": "warn"}


def complaints(*texts):
    """Looks at the log: only there UCX says that a transport fell back or a queue pair is in trouble."""
    for text in texts:
        found = re.search(r"^.*(UCX +(ERROR|FATAL)|Assertion .* failed).*$", text, re.M)
        if found:
            raise Failure(found.group(0).strip()[:200])


def transports(session):
    text = session.ended_well(session.start("a", "ucx_info", ["ucx_info", "-d"], LOUD), "ucx_info", 30)
    complaints(text)
    if "UCX  WARN" in text:
        raise Failure(expect(text, r"^.*UCX  WARN.*$", "warning").group(0)[:200])
    found = set(re.findall(r"Transport: (\S+)\n#\s+Device: mlx5_0:1", text))
    wanted = {"rc_verbs", "ud_verbs", "rc_mlx5", "ud_mlx5"}
    if not wanted <= found:
        raise Failure("not offered: " + ", ".join(sorted(wanted - found)))
    if "dc_mlx5" in found:
        raise Failure("dc_mlx5 is offered, which is not emulated")


def perftest_body(arguments, count, env):
    def body(session):
        port = free_port()
        client = (["ucx_perftest", "-p", port] + arguments + ["-n", count, "-w", 20])
        settings = dict(LOUD, **env)
        texts = session.pair(["ucx_perftest", "-p", port] + arguments[:4 if "-x" in arguments else 0],
                             lambda address: client + [address], port, settings)
        complaints(*texts)
        done = int(expect(texts[0], r"^Final: +(\d+) ", "the result").group(1))
        if done < count:
            raise Failure("%d of %d iterations" % (done, count))
    return body


def uct(transport, test, *options, n=1000, short=False):
    """Runs one transport: `-d` and `-x` choose it, so that nothing else can do the work."""
    arguments = ["-d", DEVICE, "-x", transport, "-t", test] + [str(o) for o in options]
    return Case("ucx_perftest " + " ".join(arguments[2:]), "ucx", perftest_body(arguments, n, {}),
                ["ucx_perftest"], short=short)


def ucp(transports_allowed, test, *options, n=500, short=False):
    """Runs the protocol layer, with eager and rendezvous messages and wire-up."""
    arguments = ["-t", test] + [str(o) for o in options]
    env = {"UCX_TLS": transports_allowed, "UCX_NET_DEVICES": DEVICE}
    return Case("ucx_perftest %s UCX_TLS=%s" % (" ".join(arguments), transports_allowed), "ucx",
                perftest_body(arguments, n, env), ["ucx_perftest"], short=short)


def io_demo(transport, exchanges=100, short=False):
    env = {"UCX_TLS": transport + ",tcp", "UCX_SOCKADDR_TLS_PRIORITY": "tcp",
           "UCX_NET_DEVICES": DEVICE + ",lo"}

    def body(session):
        port = free_port()
        settings = dict(LOUD, **env)
        server = session.serve(["io_demo", "-p", port], port, settings)
        # With -q both sides verify every byte.
        client = session.start("b", "client", ["io_demo", "-p", port, "-i", exchanges, "-q",
                                               "127.0.0.1"], settings)
        text = session.ended_well(client, "the client", session.case.seconds)
        complaints(text, server.text())
        expect(text, r"Client exit with status 'OK'", "the client's verdict")
        server.kill()  # it serves for ever
    return Case("io_demo -q UCX_TLS=%s" % transport, "ucx", body, ["io_demo"], short=short)


def uct_cases():
    cases = []
    for transport in ("rc_verbs", "rc_mlx5"):
        first = transport == "rc_mlx5"
        cases += [
            uct(transport, "am_lat", "-s", 8, short=True), uct(transport, "am_bw", "-s", 8),
            uct(transport, "put_lat", "-s", 8, short=first),
            uct(transport, "put_bw", "-s", 8, n=20000, short=first),
            uct(transport, "am_lat", "-s", 2048, "-D", "bcopy"),
            uct(transport, "am_bw", "-s", 2048, "-D", "zcopy"),
            uct(transport, "put_bw", "-s", 4096, "-D", "bcopy"),
            uct(transport, "put_bw", "-s", 65536, "-D", "zcopy"),
            uct(transport, "get", "-s", 4096, "-D", "bcopy"),
            uct(transport, "get", "-s", 65536, "-D", "zcopy", short=first),
            uct(transport, "add_lat", "-s", 8), uct(transport, "fadd", "-s", 8, short=first),
            uct(transport, "cswap", "-s", 8),
            uct(transport, "add_mr", "-s", 8),
        ]
    for transport in ("ud_verbs", "ud_mlx5"):
        cases += [
            uct(transport, "am_lat", "-s", 8, short=True), uct(transport, "am_bw", "-s", 64),
            uct(transport, "am_lat", "-s", 1024, "-D", "bcopy"),
            uct(transport, "am_bw", "-s", 1024, "-D", "zcopy"),
        ]
    return cases


def ucx_cases():
    cases = [Case("ucx_info -d", "ucx", transports, ["ucx_info"], short=True, packets=0)]
    cases += uct_cases()
    for allowed in ("rc_v", "rc_x", "ud_v", "ud_x"):
        cases += [
            ucp(allowed, "tag_lat", "-s", 8, short=True),
            ucp(allowed, "tag_bw", "-s", 1 << 20, n=100, short=allowed == "rc_x"),
            ucp(allowed, "tag_sync_lat", "-s", 1024), ucp(allowed, "stream_bw", "-s", 65536, n=100),
            ucp(allowed, "ucp_am_bw", "-s", 65536, n=100), ucp(allowed, "ucp_put_bw", "-s", 65536, n=100),
            ucp(allowed, "ucp_get", "-s", 65536, n=100), ucp(allowed, "ucp_fadd", "-s", 8),
        ]
    return cases + [io_demo("rc_v"), io_demo("rc_x"), io_demo("ud_v")]
