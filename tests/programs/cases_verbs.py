"""Cases of perftest and of the programs of ibverbs-utils."""

import math
import re

from harness.case import Case, Failure, expect
from harness.ports import free_port

CLOCK_UNKNOWN = "Correlation coefficient r^2"


def perftest_body(tool, iterations, size, options, queue_pairs):
    bandwidth = tool.endswith("_bw")
    # A latency test counts exchanges, a bandwidth test the messages of all queue pairs.
    counted = iterations * queue_pairs if bandwidth else iterations

    def body(session):
        port = free_port()
        argv = [tool, "-d", "mlx5_0", "-F", "-n", iterations, "-p", port]
        if "atomic" not in tool:  # atomics always have 8 bytes
            argv += ["-s", size]
        if "-x" not in options:
            argv += ["-x", 3]
        argv += options
        text, _ = session.pair(argv, argv, port)
        line = expect(text, r"^ *%d +(\d+) +([0-9.]+|inf) +([0-9.]+|inf)\s" % size,
                      "the result").groups()
        if int(line[0]) != counted:
            raise Failure("%s iterations instead of %d" % (line[0], counted))
        # perftest first compares the processor's clock with the time of day. On a busy machine that may
        # fail: then it says so, and every result is 0 or infinite.
        if CLOCK_UNKNOWN in text:
            return
        # With many iterations the peak is not measured.
        if not 0 < float(line[2 if bandwidth else 1]) < math.inf:
            raise Failure("not a result: " + " ".join(line))
    return body


def perftest(tool, *options, n=500, size=None, short=False, seconds=60):
    if "atomic" in tool:
        size = 8
    elif size is None:
        size = 65536 if tool.endswith("_bw") else 8
    options = [str(option) for option in options]
    queue_pairs = int(options[options.index("-q") + 1]) if "-q" in options else 1
    name = " ".join([tool] + options + ["-s %d" % size])
    return Case(name, "perftest", perftest_body(tool, n, size, options, queue_pairs), [tool],
                short=short, seconds=seconds)


def perftest_all_sizes(tool):
    def body(session):
        port = free_port()
        argv = [tool, "-d", "mlx5_0", "-F", "-x", "3", "-a", "-n", "20", "-p", port]
        text, _ = session.pair(argv, argv, port)
        sizes = [int(m) for m in re.findall(r"^ *(\d+) +20 +(?:[0-9.]+|inf) ", text, re.M)]
        if sizes != [2 ** power for power in range(1, 24)]:
            raise Failure("not all sizes: %s" % sizes)
    # Between sizes a latency test spins on the clock with nothing posted, for seconds on a busy machine.
    return Case(tool + " -a", "perftest", body, [tool], seconds=180)


def perftest_cases():
    bw = lambda verb, *options, **more: perftest("ib_%s_bw" % verb, *options, **more)  # noqa: E731
    lat = lambda verb, *options, **more: perftest("ib_%s_lat" % verb, *options, **more)  # noqa: E731
    cases = [
        bw("write", short=True), bw("send", short=True), bw("read", short=True),
        lat("write", short=True), lat("send", short=True), lat("read", short=True),
        bw("write", "-q", 4), bw("write", "-b"), bw("write", "-q", 4, "-b"),
        bw("write", "-l", 16, size=4096, n=3200, short=True),
        bw("write", "-I", 64, size=64, n=20000), bw("write", size=1, n=20000),
        bw("write", "-m", 256, size=100001, n=100), bw("write", size=8 << 20, n=20),
        bw("write", "-x", 1), bw("write", "-x", 2), bw("write", "-t", 1, size=4096),
        bw("write", "--use_old_post_send", size=4096),
        bw("send", "-e", short=True), bw("send", "-q", 4), bw("send", "-b"),
        bw("send", "-l", 16, size=4096, n=3200), bw("send", "-I", 64, size=64, n=20000),
        bw("send", "-r", 16), bw("send", size=100001),
        bw("send", "--use-srq", "-q", 2, size=4096, short=True),
        bw("send", "--use-srq", "-q", 4, size=65536), bw("send", "--use-srq", "-e", "-q", 2),
        bw("read", "-e"), bw("read", "-q", 4), bw("read", "-b"), bw("read", "-o", 1, size=4096),
        bw("read", size=100001), bw("read", "-o", 16, size=8 << 20, n=20),
        lat("write", "-I", 64, size=64), lat("write", size=65536), lat("write", "-x", 1),
        lat("send", "-e"), lat("send", "-I", 64, size=64), lat("send", size=65536),
        lat("send", "--use-srq"), lat("send", "--use-srq", "-e"),
        lat("read", "-e"), lat("read", size=65536),
    ]
    for atomic in ("CMP_AND_SWAP", "FETCH_AND_ADD"):
        cases += [bw("atomic", "-A", atomic, short=atomic == "CMP_AND_SWAP"),
                  lat("atomic", "-A", atomic), bw("atomic", "-A", atomic, "-q", 4),
                  lat("atomic", "-A", atomic, "-e"), bw("atomic", "-A", atomic, "-e")]
    cases += [
        bw("write", "-c", "UC"), bw("write", "-c", "UC", "-q", 4, size=4096), bw("send", "-c", "UC"),
        bw("send", "-c", "UC", "-e"), bw("send", "-c", "UC", "-q", 4, size=4096),
        lat("send", "-c", "UC", "-e"), lat("write", "-c", "UC"), lat("send", "-c", "UC", short=True),
        bw("send", "-c", "UD", size=1024, short=True), bw("send", "-c", "UD", "-b", size=2048),
        bw("send", "-c", "UD", "-e", size=4096), bw("send", "-c", "UD", "-q", 4, size=1024),
        bw("send", "-c", "UD", "--use-srq", size=1024), lat("send", "-c", "UD", "--use-srq"),
        lat("send", "-c", "UD", short=True), lat("send", "-c", "UD", "-e"),
        lat("send", "-c", "UD", "-x", 1, size=2048), lat("send", "-c", "UD", "-I", 64, size=64),
        bw("send", "-c", "XRC"), lat("send", "-c", "XRC"), bw("write", "-c", "XRC"),
    ]
    return cases + [perftest_all_sizes("ib_write_bw"), perftest_all_sizes("ib_read_bw"),
                    perftest_all_sizes("ib_send_lat")]


def pingpong(kind, *options, n=500, short=False):
    options = [str(option) for option in options]
    program = "ibv_%s_pingpong" % kind

    def body(session):
        port = free_port()
        argv = [program, "-d", "mlx5_0", "-p", port, "-n", n] + options
        if "-g" not in options:
            argv += ["-g", 3]
        client, server = session.pair(argv, argv, port)
        for who, text in (("client", client), ("server", server)):
            expect(text, r"^%d iters in " % n, "the %s's count" % who)
            if "invalid data" in text:
                raise Failure("invalid data at the " + who)
    return Case(" ".join([program] + options), "pingpong", body, [program], short=short)


def xsrq_pingpong(clients, *options, short=False):
    program = "ibv_xsrq_pingpong"

    def body(session):
        port = free_port()
        argv = [program, "-d", "mlx5_0", "-p", port, "-g", 3, "-n", 40] + list(options)
        server = session.serve(argv + ["-c", clients], port)
        address = session.address("a")
        # Each client has a host of its own: clients on one host share an XRC domain by a file, but on an emulated
        # host a domain belongs to one process.
        started = [session.start("bcdefgh"[i], "client%d" % i, argv + [address])
                   for i in range(clients)]
        for number, client in enumerate(started):
            session.ended_well(client, "client %d" % number, session.case.seconds)
        session.ended_well(server, "the server", 20)
    return Case(" ".join([program, "-c", str(clients)] + list(options)), "pingpong", body, [program],
                short=short)


def pingpong_cases():
    return [
        pingpong("rc", "-c", short=True), pingpong("rc", "-c", "-e", short=True),
        pingpong("rc", "-c", "-N"), pingpong("rc", "-c", "-t"), pingpong("rc", "-c", "-N", "-e"),
        pingpong("rc", "-c", "-g", 0), pingpong("rc", "-c", "-s", 1 << 20, "-m", 4096),
        pingpong("rc", "-c", "-s", 1), pingpong("rc", "-c", "-r", 1),
        pingpong("uc", "-c", short=True), pingpong("uc", "-c", "-e"),
        pingpong("ud", "-c", short=True), pingpong("ud", "-c", "-e"), pingpong("ud", "-c", "-g", 0),
        pingpong("srq", "-c", n=100, short=True), pingpong("srq", "-c", "-e", "-q", 4),
        pingpong("srq", "-c", "-q", 1),
        xsrq_pingpong(1, short=True), xsrq_pingpong(3), xsrq_pingpong(2, "-e"),
    ]


def devinfo(session):
    text = session.ended_well(session.start("a", "devinfo", ["ibv_devinfo", "-v"]), "ibv_devinfo", 20)
    for device in ("mlx5_0", "mlx5_1"):
        expect(text, r"hca_id:\s+%s$" % device, "the device")
        address = session.address("a", device)
        expect(text, r"GID\[ *3\]:\s+::ffff:%s, RoCE v2" % re.escape(address), "its GID")
    if len(re.findall(r"state:\s+PORT_ACTIVE", text)) != 2:
        raise Failure("not both ports are active")
    text = session.ended_well(session.start("a", "devices", ["ibv_devices"]), "ibv_devices", 20)
    expect(text, r"^\s*mlx5_1\s+[0-9a-f]{16}$", "ibv_devices")


def asyncwatch(session):
    watch = session.start("a", "asyncwatch", ["stdbuf", "-oL", "ibv_asyncwatch", "-d", "mlx5_0"])
    if not watch.wait_for(lambda p: "async event FD" in p.text(), 20):
        raise Failure("it does not start")
    for fault, number in (("link-down", 10), ("link-up", 9), ("kill", 8)):
        session.fabric.fault("a/mlx5_0", fault)
        # The line contains the event's name or number.
        wanted = {10: "PORT_ERR|port error|10", 9: "PORT_ACTIVE|port active|9", 8: "FATAL|fatal|8"}
        if not watch.wait_for(lambda p: re.search(r"event.*(%s)" % wanted[number], p.text()), 10):
            raise Failure("no event after " + fault)
    watch.kill()


def device_cases():
    return [
        Case("ibv_devinfo -v", "device", devinfo, ["ibv_devinfo"], short=True, packets=0),
        Case("ibv_asyncwatch", "device", asyncwatch, ["ibv_asyncwatch", "stdbuf"], short=True,
             packets=0, quiet=False),
    ]
