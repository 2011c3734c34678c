"""What programs and administrators do on a host with the packages. roots.py runs these cases."""

import json
import os
import pathlib
import re
import shutil
import time

from inside import Inside
from root import require

TESTS = pathlib.Path(__file__).resolve().parents[1]
BW = ("ib_write_bw", "-d", "mlx5_0", "-x", "3", "-s", "65536", "-F")
PORT = 18515  # perftest's own
STORE_PORT = 6380
MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_plm_rsh_agent": "false",  # there is no remote shell
    "OMPI_MCA_pml": "ucx", "OMPI_MCA_osc": "ucx", "OMPI_MCA_btl": "self",
    "OMPI_MCA_hwloc_base_binding_policy": "none", "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_MCA_hwloc_default_binding_policy": "none", "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    # The ranks share a machine, so UCX would find shared memory.
    "UCX_TLS": "self,rc_v", "UCX_NET_DEVICES": "mlx5_0:1", "UCX_WARN_UNUSED_ENV_VARS": "n",
}
# Programs of librdmacm, and what they do without an address.
CM = {"rping": ("-s",), "ucmatose": (), "rstream": (), "udaddy": ()}


def on_host(host, *words):
    return ("cxemu", "exec", "--host", host, "--", *words)


def bw_start(inside, *options):
    """Both ends of a program that sends all the time."""
    words = (*BW, "-p", PORT, *options)
    inside.pair(PORT, lambda name, host, *last: inside.start(name, *on_host(host, *words, *last)))


def jobs(root, packages):
    """A job of Open MPI survives its NIC without shift-run, and ends without SHIFT."""
    root.install(*packages.now, packages.files["cxemu"], "openmpi-bin", "libopenmpi-dev", "gcc", "libc6-dev")
    shutil.copy(TESTS / "programs/mpi_check.c", root.path / "debs")
    root.run("mpicc", "-O2", "-o", "/debs/mpi_check", "/debs/mpi_check.c")
    for fault in ("link-down", "kill"):
        with Inside(root, SHIFT_LOG="info", **MPI) as inside:
            job = job_start(inside)
            inside.wait("both ranks are protected", 60, lambda: inside.protected(2, "mlx5_0"))
            inside.fault("a/mlx5_0", fault)
            inside.ended_well(200)
            said = job.log.read_text()
            require("mpi_check ok: 2 ranks" in said, "the job says: " + said[-1500:])
            require(said.count("goes on over mlx5_1") >= 2, "the job has stayed on its NICs: " + said[-1500:])
    with Inside(root, SHIFT_DISABLE="1", **MPI) as inside:
        job_start(inside)
        inside.fault("a/mlx5_0", "link-down")
        require(inside.dies(40), "without SHIFT the job survives, so the above shows nothing")


# Each rank picks its host: Debian 13's mpirun crashes when it is given a command line for each of them.
RANK = 'test "$OMPI_COMM_WORLD_RANK" = 0 && host=a || host=b; exec cxemu exec --host $host -- "$@"'


def job_start(inside):
    job = inside.start("mpirun", "mpirun", "-np", "2", "sh", "-c", RANK, "rank",
                       "/debs/mpi_check", "1", "600", str(1 << 18), "messages")
    # UCX connects over UD, which is not protected; in the first round each has met all.
    inside.wait("the first round is over", 60, lambda: "is over" in job.log.read_text())
    return job


def operated(root, packages):
    """shiftctl sees the processes of the host. Traffic leaves a NIC on order, whose link can fail then, and comes
    back."""
    root.install(*packages.now, packages.files["cxemu"], "perftest")
    with Inside(root) as inside:
        require(health(inside) == (0, "ok"), "without a process, the health is %s" % (health(inside),))
        bw_start(inside, "-n", 1500000)
        inside.wait("both ends are protected", 30, lambda: inside.protected(2, "mlx5_0"))
        found = sorted((process["program"], process["user"]) for process in inside.status()["processes"])
        require(found == [("ib_write_bw", "root")] * 2, "the processes are %s" % found)
        require(health(inside) == (0, "ok"), "the health is %s" % (health(inside),))
        require("can be drained" in inside.run("shiftctl", "explain", "mlx5_0"), "a NIC is not explained")

        inside.run("shiftctl", "drain", "mlx5_0")
        require(inside.on("mlx5_1"), "drained, and there are still QPs on it: %s" % inside.qps())
        require("mlx5_0  root" in inside.run("shiftctl", "drain", "--list"), "the order is not listed")
        idle, busy = inside.packets("mlx5_0"), inside.packets("mlx5_1")
        require(health(inside) == (1, "degraded"), "drained, the health is %s" % (health(inside),))
        inside.fault("a/mlx5_0", "link-down")
        inside.wait("traffic goes on", 20, lambda: inside.packets("mlx5_1") > busy + 10000)
        inside.fault("a/mlx5_0", "link-up")
        # What is left are probes.
        require(inside.packets("mlx5_0") - idle < 100, "the drained NIC carries traffic")

        inside.run("shiftctl", "undrain", "mlx5_0")
        inside.wait("traffic is back", 30, lambda: inside.protected(2, "mlx5_0"))
        back = inside.packets("mlx5_0")
        inside.wait("traffic goes on", 20, lambda: inside.packets("mlx5_0") > back + 10000)
        require(health(inside) == (0, "ok"), "in the end the health is %s" % (health(inside),))
        inside.ended_well(300)


def verified(root, packages):
    """shift-verify finds nothing wrong with emulated NICs. It looks beneath the fronts, which all programs have,
    and its own traffic survives."""
    root.install(*packages.now, packages.files["cxemu"])
    with Inside(root) as inside:
        report = json.loads(inside.run(*on_host("a", "shift-verify", "--json")))
        bad = ["%(check)s %(nic)s: %(text)s" % one for one in report["checks"] if one["verdict"] == "failure"]
        require(not bad, "shift-verify: %s" % bad)
        moved = [one["nic"] for one in report["checks"] if (one["check"], one["verdict"]) == ("failover", "ok")]
        require(moved == ["mlx5_0", "mlx5_1"], "its traffic has survived on %s" % moved)
        require("shift-verify" not in inside.run("shiftctl", "status", "--json"), "it leaves processes behind")


def store(root, packages):
    """Two ends that may ask nobody else find each other by a redis server, over TLS, and survive the NIC. They do
    not with other authorities, or without the plug-in."""
    root.install(*packages.now, packages.files["cxemu"], "perftest", "redis-server", "openssl")
    for name in ("store", "other"):
        root.run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=store", "-addext",
                 "subjectAltName=IP:127.0.0.1", "-keyout", "/debs/%s.key" % name, "-out", "/debs/%s.pem" % name)
    # Hosts that have met once need no store, so that comes last.
    store_try(root, "other", "TLS: ")
    plugin = next(root.path.glob("usr/lib/*/shift/libshift-tls.so"))
    hidden = plugin.rename(root.path / "debs/plugin")
    store_try(root, "store", "TLS needs ")
    hidden.rename(plugin)
    store_try(root, "store", None)


def store_try(root, authority, problem):
    setting = "redis://127.0.0.1:%d,tls,ca=/debs/%s.pem" % (STORE_PORT, authority)
    with Inside(root, SHIFT_RENDEZVOUS=setting, SHIFT_RENDEZVOUS_MS="5000") as inside:
        inside.start("redis", "redis-server", "--port", "0", "--tls-port", STORE_PORT, "--tls-cert-file",
                     "/debs/store.pem", "--tls-key-file", "/debs/store.key", "--tls-auth-clients", "no",
                     "--save", "", "--appendonly", "no")
        inside.wait("the store listens", 20, lambda: inside.is_listening(STORE_PORT))
        bw_start(inside, "-n", 400000)
        if problem:
            inside.wait("the ends complain", 30, lambda: problem in inside.logs())
            time.sleep(6)
            require(not inside.protected(1), "the ends have found each other all the same")
            return
        inside.wait("both ends are protected", 30, lambda: inside.protected(2, "mlx5_0"))
        inside.fault("a/mlx5_0", "link-down")
        inside.wait("traffic goes on", 60, lambda: inside.packets("mlx5_1") > 10000)


def health(inside):
    done = inside.attempt("shiftctl", "health", "--json")
    return done.returncode, json.loads(done.stdout)["health"]


# The emulator's way into programs that gain privileges: the linker keeps LD_PRELOAD from them, and libibverbs
# SYSFS_PATH. The mounts are of one program alone. Where /sys has a PCI bus, as the emulator's has, it must list
# its devices, or libpci ends the program; without the mount, programs see the list of the machine.
PRIVILEGED = """
set -e
mkdir -p "$0/$SYSFS_PATH/bus/pci/devices"
mount --bind "$0/$SYSFS_PATH" "$0/sys"
mount --bind "$0/debs/preload" "$0/etc/ld.so.preload"
exec "$@"
"""
OWNER, USER = "2001", "2002"


def privileged_start(inside, name, host, *words, **environment):
    said = inside.run(*inside.as_user, "cxemu", "env", "--host", host)
    emulated = dict(re.findall(r"^export (\w+)='(.*)'$", said, re.M))
    library = emulated.pop("LD_PRELOAD")
    (inside.root.path / "debs/preload").write_text(library + "\n")
    before = ["unshare", "--mount", "sh", "-c", PRIVILEGED, inside.root.path]
    inside.start(name, "setpriv", "--reuid=" + USER, "--clear-groups", *words, before=before,
                 **emulated, **environment)


def set_user_id(root, packages):
    """A set-user-ID program survives its NIC where /etc/shift.conf has SHIFT_PRIVILEGED, and has plain verbs
    otherwise. The environment of its user counts for nothing."""
    root.install(*packages.now, packages.files["cxemu"], "perftest")
    program = root.path / "usr/bin/privileged_bw"
    shutil.copy(root.path / "usr/bin/ib_write_bw", program)
    os.chown(program, int(OWNER), int(OWNER))
    program.chmod(0o4755)
    (root.path / "etc/ld.so.preload").touch()
    for is_on in (True, False):
        against = {"SHIFT_PRIVILEGED": str(int(not is_on)), "SHIFT_DISABLE": str(int(is_on))}
        with Inside(root, user=OWNER) as inside:
            (root.path / "etc/shift.conf").write_text("SHIFT_PRIVILEGED = %d\n" % is_on)
            inside.pair(PORT, lambda name, host, *last: privileged_start(
                inside, name, host, "privileged_bw", *BW[1:], "-n", 400000, "-p", PORT, *last, **against))
            if is_on:
                inside.wait("both ends are protected", 30, lambda: inside.protected(2, "mlx5_0"))
            inside.wait("there is traffic", 30, lambda: inside.packets("mlx5_0") > 10000)
            users = [process["uid"] for process in inside.status()["processes"]]
            require(users == [int(OWNER)] * 2 * is_on, "the processes with SHIFT are of %s" % users)
            inside.fault("a/mlx5_0", "link-down")
            if is_on:
                inside.ended_well(300)
                require(inside.packets("mlx5_1") > 10000, "the other NIC has carried nothing")
            else:
                require(inside.dies(20), "without the layer it survives, so the above shows nothing")


def connection_manager(root, packages):
    """Programs of librdmacm load the fronts. cxemu has no rdma_cm, so they end with the words of the stock stack;
    tests/vm has their failover."""
    root.install(*packages.now, packages.files["cxemu"], "rdmacm-utils")
    with Inside(root) as inside:
        for name, options in CM.items():
            linked = inside.run("ldd", "/usr/bin/" + name)
            require("/shift/librdmacm.so.1" in linked and "/shift/libibverbs.so.1" in linked,
                    "%s has no fronts: %s" % (name, linked))
            said = []
            for disabled in "01":
                done = inside.attempt(*on_host("a", "timeout", "20", name, *options), SHIFT_DISABLE=disabled)
                said.append((done.returncode, done.stdout))
            require(said[0] == said[1] and said[0][0] not in (124, 139), "%s: %s with SHIFT, %s without" % (
                name, *said))


EXERCISES = (jobs, operated, verified, store, set_user_id, connection_manager)
