"""Cases that are jobs of several processes: Open MPI over UCX, Gloo, PyTorch RPC. Each verifies its own data."""

import os

from harness import TESTS
from harness.case import Case, Failure, expect
from harness.ports import free_port

from programs.compiled import compiled, gloo_check

MPI_HEADER = "/usr/lib/x86_64-linux-gnu/openmpi/include/mpi.h"
GLOO_HEADER = "/usr/include/gloo/transport/ibverbs/device.h"
TORCH = "/usr/lib/python3/dist-packages/torch/__init__.py"
PYTHON = "/usr/bin/python3"  # the distribution's, which has the distribution's torch


def built(make, *arguments):
    try:
        return make(*arguments)
    except RuntimeError as error:
        raise Failure(str(error)) from None


def mpi_settings(transport, devices):
    return {
        "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_plm": "isolated",  # no remote shell: the emulated hosts are one machine
        "OMPI_MCA_pml": "ucx", "OMPI_MCA_osc": "ucx", "OMPI_MCA_btl": "self",
        "OMPI_MCA_hwloc_base_binding_policy": "none", "OMPI_MCA_rmaps_base_oversubscribe": "1",
        # UCX may use only the NIC: the ranks share a machine, so it would find shared memory.
        "UCX_TLS": "self," + transport, "UCX_NET_DEVICES": devices,
        "UCX_WARN_UNUSED_ENV_VARS": "n",
    }


def mpi_start(session, transport, hosts, rounds, limit, what, devices="mlx5_0:1"):
    program = built(compiled, session.build.path, "mpicc", "mpi_check.c")
    argv = ["mpirun"]
    for number, host in enumerate(hosts):
        argv += [":"] if number else []
        argv += ["-np", "1"] + session.on_host(
            host, [program, str(session.seed), str(rounds), str(limit), what])
    return session.start_outside("mpirun", argv, mpi_settings(transport, devices))


def mpi_judge(session, program, ranks):
    text = session.ended_well(program, "mpirun", session.case.seconds)
    expect(text, r"^mpi_check ok: %d ranks, [1-9]\d* checks$" % ranks, "the verdict")


def mpi(transport, hosts, rounds=3, limit=1 << 20, what="all", short=False, seconds=90, devices="mlx5_0:1"):
    def body(session):
        mpi_judge(session, mpi_start(session, transport, hosts, rounds, limit, what, devices), len(hosts))
    name = "Open MPI %d ranks on %d hosts, %s, %s, up to %d KiB" % (
        len(hosts), len(set(hosts)), transport, what, limit >> 10)
    return Case(name, "mpi", body, ["mpirun", "mpicc", MPI_HEADER], short=short, seconds=seconds,
                packets=1000)


def gloo(algorithm, ranks, count, rounds, short=False, meet=False):
    def body(session):
        program = built(gloo_check, session.build.path)
        store = os.path.join(session.directory, "store-%d" % free_port())  # a run has one of its own
        os.makedirs(store)
        started = []
        for rank in range(ranks):
            argv = [program, rank, ranks, store, algorithm, count, rounds, session.seed, "mlx5_0", 3]
            argv += ["meet"] * meet
            started.append(session.start("ab"[rank % 2], "rank%d" % rank, argv))
        for rank, one in enumerate(started):
            text = session.ended_well(one, "rank %d" % rank, session.case.seconds)
            expect(text, r"^gloo_check ok: %d rounds$" % rounds, "rank %d" % rank)
    return Case("Gloo %s, %d ranks" % (algorithm, ranks), "gloo", body, ["g++", GLOO_HEADER],
                short=short)


def torch_rpc(elements, calls, seconds=150):
    def body(session):
        meeting = "127.0.0.1:%d" % free_port()
        script = os.path.join(TESTS, "programs", "rpc_check.py")
        argv = [PYTHON, script]
        last = [meeting, str(elements), str(calls), str(session.seed)]
        worker = session.start("a", "worker", argv + ["1"] + last)
        caller = session.start("b", "caller", argv + ["0"] + last)
        text = session.ended_well(caller, "the caller", session.case.seconds)
        expect(text, r"^rpc_check ok: %d calls$" % calls, "the verdict")
        session.ended_well(worker, "the worker", 30)
    return Case("PyTorch RPC over TensorPipe ibv, %d elements" % elements, "torch", body,
                [PYTHON, TORCH], seconds=seconds)


def job_cases():
    return [
        mpi("rc_v", "ab", short=True), mpi("rc_x", "ab"), mpi("ud_v", "ab"), mpi("ud_x", "ab"),
        mpi("rc_v", "abab", short=True), mpi("rc_x", "abab"), mpi("ud_v", "abab"),
        mpi("rc_v", "abcd"), mpi("rc_x", "ab", limit=8 << 20, rounds=2),
        gloo("ring", 2, 65536, 5, short=True), gloo("ring_chunked", 2, 262144, 5),
        gloo("halving_doubling", 2, 65536, 5), gloo("bcube", 2, 65536, 5), gloo("ring", 4, 65536, 5),
        gloo("halving_doubling", 4, 262144, 5),
        torch_rpc(64, 50), torch_rpc(262144, 20),
    ]
