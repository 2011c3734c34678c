"""Cases under load: programs run while other processes want every core. They are slower, but no time-out may
fire.

A real NIC is not slow because its host is busy. An emulated NIC shares the cores, so the emulator must not let
a peer that waits for a core look like a lost packet.
"""

import os

from harness.case import Case, Failure

from programs.cases_jobs import MPI_HEADER, mpi_judge, mpi_start
from programs.cases_verbs import perftest_body

LOOP = ["/bin/sh", "-c", "while :; do :; done"]


def loaded(case_body):
    def body(session):
        loops = [session.start_outside("loop%d" % i, LOOP) for i in range(os.cpu_count() or 1)]
        try:
            case_body(session)
        finally:
            for loop in loops:
                loop.kill()
        timeouts = session.counters()["local_ack_timeout_err"]
        if timeouts != 0:
            raise Failure("%d time-outs, although nothing was lost" % timeouts)
    return body


def under_load(name, body, needs, short=False):
    return Case(name + ", all cores busy", "load", loaded(body), needs, short=short, seconds=120)


def load_cases():
    def job(session):
        mpi_judge(session, mpi_start(session, "rc_v", "abab", 1, 1 << 18, "all"), 4)
    return [
        under_load("ib_write_bw -s 65536", perftest_body("ib_write_bw", 500, 65536, [], 1),
                   ["ib_write_bw"], short=True),
        under_load("ib_send_lat -s 8", perftest_body("ib_send_lat", 200, 8, [], 1), ["ib_send_lat"],
                   short=True),
        under_load("ib_write_lat -s 8", perftest_body("ib_write_lat", 200, 8, [], 1),
                   ["ib_write_lat"]),
        under_load("ib_send_bw -e", perftest_body("ib_send_bw", 300, 65536, ["-e"], 1),
                   ["ib_send_bw"]),
        under_load("Open MPI 4 ranks on 2 hosts, rc_v", job, ["mpirun", "mpicc", MPI_HEADER]),
    ]
