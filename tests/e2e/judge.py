"""Runs one cell of a campaign and judges the outcome. Campaign, demo and planted bugs use it."""

import dataclasses
import os
import shutil
import time

from harness import checker
from harness.fabric import Fabric
from harness.faults import healing
from harness.pauses import Pause
from harness.report import write_json
from harness.standstill import STANDSTILL
from harness.waiting import wait_until

from e2e import beside, cells
from e2e.witness import Witness

HEALING = {"heal", "heal_quiet"}
MOVING = {"masked", "late_packets"} | HEALING
ALWAYS_SHIFT = MOVING | {"clean", "idle_backup", "second_fault", "both_nics", "early_fault", "atomic"}
MUST_PASS = MOVING | {"clean", "idle_backup", "peer_stock", "peer_stock_pause", "disabled"}
MUST_FAIL = {"both_nics", "peer_stock_fault", "disabled_fault", "stock_fault"}
# The QPs of these kinds are not protected.
ON_STOCK = {"peer_stock_fault", "disabled_fault", "stock_fault"}
# Other traffic on the NICs would hide what these are about, or there is nothing that a witness could see.
UNWATCHED = HEALING | {"clean"}
# All QPs must move within so many seconds (C7).
SWITCH_BOUND = 10.0


@dataclasses.dataclass
class Result:
    cell: cells.Cell
    problems: list = dataclasses.field(default_factory=list)
    codes: tuple = (None, None)
    gap_ms: float = 0.0       # the longest time without progress at either end
    error_s: float = 0.0      # from the fault to the program's first error, while the machine did not stand still
    switch_us: int = 0        # as the layer measured it
    seconds: float = 0.0
    repeated: int = 0         # how often the run had to be repeated
    met: bool = False         # all QPs had found their peers before the fault, which must be masked
    pause: Pause = None       # what the program saw of the switch, of cells whose pause is judged
    spurious: bool = False    # QPs moved without a fault: the machine is too busy
    witnessed: bool = False   # a witness watched for WRITEs that run twice

    def ok(self):
        return not self.problems


def must_pass(cell, mode="relaxed"):
    # The mode exact gives an error where a dead NIC has received WRITEs, credits among them.
    if mode == "exact" and deaths(cell):
        return False
    # While one NIC is left on each side, there is a path across rails.
    return cell.kind in MUST_PASS or (cell.kind == "second_fault" and
                                      cell.second_side != cell.side)


def deaths(cell):
    """The hosts one of whose NICs dies, which carries traffic."""
    faults = [(cell.fault, cell.side)] if cell.kind != "idle_backup" else []
    if cell.kind == "second_fault":
        faults.append((cell.second_fault, cell.second_side))
    if cell.kind == "both_nics":
        faults.append((cell.second_fault, cell.side))
    return {side for fault, side in faults if fault == "kill"}


def must_fail(cell):
    return cell.kind in MUST_FAIL or (cell.kind == "second_fault" and
                                      cell.second_side == cell.side)


def expected_qps(cell):
    return int(cell.options[cell.options.index("--qps") + 1])


def all_have(fabric, cell, event):
    """Whether both ends have recorded this event for every QP."""
    return fabric.all_have(event, expected_qps(cell), *checker.ENDS)


def start_pair(fabric, cell, env):
    layered = cell.kind in ALWAYS_SHIFT
    env = dict(env or {}, SHIFT_DISABLE="1" if cell.kind.startswith("disabled") else "0")
    client_layered = cell.kind != "stock_fault"
    server_layered = layered or cell.kind.startswith("disabled")
    # A receiver of plain WRITEs learns of them by the sender's completions, which are rare here.
    stall_ms = 3 * cells.STALL_MS if cell.kind == "heal_quiet" else cells.STALL_MS
    common = ["--stall-ms", str(stall_ms), "--timeout-ms", "40000"]
    place = cell.options.index("--gid-index") if "--gid-index" in cell.options else len(cell.options)
    return checker.checker_start(
        fabric, fabric.build.traffic,
        common + cell.options[place:place + 2] + checker.report_option(fabric, "server"),
        common + checker.report_option(fabric, "client") + [
            "--op", cell.op, "--api", cell.api, "--until-stop"] + cell.options,
        (client_layered, server_layered), env)


def comes_back(cell):
    """Whether traffic comes back after the NIC heals. A context whose device died never gets it back."""
    return cell.kind in HEALING and cell.fault != "kill"


def switched(fabric, cell, times=1):
    """Whether every QP has moved at both ends. All have traffic, so all notice a silent fault."""
    return fabric.all_have("switched", expected_qps(cell) * times, *checker.ENDS)


def reach_fault(fabric, cell, client, stock):
    """Waits for the moment of the fault. Returns why it did not come, or an empty string."""
    if cell.kind in ALWAYS_SHIFT and not wait_until(
            lambda: all_have(fabric, cell, "armed") or client.ended, 10):
        return "not armed within 10 s"
    if not client.wait_for(lambda p: p.progress >= cell.at, 20):
        return "the traffic did not get to the fault"
    if stock is not None:
        stock.reach(cell.at)
    time.sleep(cell.delay_ms / 1000)
    return "the traffic ended before the fault" if client.ended else ""


def check_default_used(fabric, client, result):
    """Checks that the client's traffic uses its default NIC again after the failback."""
    before = fabric.sent_packets("a/mlx5_0")
    used = lambda: fabric.sent_packets("a/mlx5_0") > before
    if not wait_until(lambda: used() or client.ended, 4, step=0.02):
        result.problems.append("the default NIC is not used after the way back")


def inject(fabric, cell, client, stock, result):
    """Breaks what the cell says. Returns the time of the last fault, or None."""
    default, backups = "%s/mlx5_0" % cell.side, fabric.backups(cell.side)
    if cell.kind == "early_fault":
        time.sleep(cell.delay_ms / 100)
        wait_until(lambda: fabric.counters(default) or client.ended, 10)  # a busy machine is slow
        # Traffic shows that both programs have set up all they need. A device that dies earlier refuses
        # new memory regions, as with the stock library.
        result.met = client.progress > 0 and all_have(fabric, cell, "bound")
        return fabric.fault(default, cell.fault)
    problem = reach_fault(fabric, cell, client, stock)
    result.met = all_have(fabric, cell, "bound")
    if problem:
        # A busy machine alone can exhaust the retries, and an atomic is never replayed.
        if cell.kind != "atomic":
            result.problems.append(problem)
        return None
    if cell.kind == "idle_backup":
        return fabric.fault(backups[0], cell.fault)
    when = fabric.fault(default, cell.fault)
    if cell.kind == "peer_stock_pause":
        time.sleep(cells.PAUSE_S)
        return fabric.fault(default, healing(cell.fault))
    if cell.kind == "both_nics":
        return [fabric.fault(backup, cell.second_fault) for backup in backups][-1]
    if cell.kind in HEALING:
        wait_until(lambda: switched(fabric, cell) or client.ended, SWITCH_BOUND)
        fabric.fault(default, healing(cell.fault))
        if comes_back(cell):
            wait_until(lambda: switched(fabric, cell, 2) or client.ended, SWITCH_BOUND)
            check_default_used(fabric, client, result)
    if cell.kind == "second_fault":
        if not wait_until(lambda: switched(fabric, cell) or client.ended, SWITCH_BOUND):
            result.problems.append("no switch before the second fault")
            return None
        return [fabric.fault(backup, cell.second_fault) for backup in fabric.backups(cell.second_side)][-1]
    return when


def settle(fabric, cell, client):
    """Lets the traffic go on until the fault has had its effect, and a little longer. Returns when it ended."""
    if must_fail(cell):
        wait_until(lambda: client.ended, cells.ERROR_BOUND + cells.STALL_MS / 1000)
    elif cell.kind in MOVING:
        wait_until(lambda: switched(fabric, cell) or client.ended, SWITCH_BOUND)
    elif cell.kind == "second_fault":
        wait_until(lambda: switched(fabric, cell, 2) or client.ended, SWITCH_BOUND)
    elif cell.kind in ("early_fault", "atomic"):
        wait_until(lambda: switched(fabric, cell) or client.ended, SWITCH_BOUND / 5)
    else:
        client.wait_for(lambda p: p.progress >= cell.at, 10)
    progress = client.progress
    client.wait_for(lambda p: p.progress > progress, 2)
    late = cells.LATE_MS if cell.kind == "late_packets" else 0
    wait_until(lambda: client.ended, (cell.after_ms + late) / 1000)
    end_ns = time.monotonic_ns()
    client.tell("stop")
    return end_ns


def witness_begin(fabric, cell, mode, env):
    """The witness of a run whose mode forbids that WRITEs run twice; or None."""
    is_asking = mode in ("exact", "auto")
    is_watched = is_asking and cell.kind in ALWAYS_SHIFT - UNWATCHED and not cell.waits
    return Witness(fabric, env) if is_watched else None


def witness_end(cell, mode, witness):
    """What the witness saw that must not be. Host b receives its WRITEs."""
    is_dead = "b" in deaths(cell)
    masked = must_pass(cell) or cell.kind in ("atomic", "early_fault")
    return witness.problems(is_dead and mode == "auto",
                            masked and witness.is_met and not (is_dead and mode == "exact"), SWITCH_BOUND)


def judge(fabric, cell, result, fault_time, mode):
    """Compares what happened with what is promised for this kind of cell."""
    codes = result.codes
    say = result.problems.append
    reports = [checker.report_of(fabric.directory, name) for name in checker.ENDS]
    # A dead NIC gives no completions: with the stock library a program that waits for one hangs. Where the
    # other end had consumed all that was posted, the checker calls the missing completions a violation.
    stock_silence = cell.kind in ON_STOCK and cell.fault == "kill"
    if checker.VIOLATION in codes and not (stock_silence and checker.is_only_silence(reports)):
        say("violation")
    if None in codes or (checker.HANG in codes and not stock_silence):
        say("hang")
    for name, code in zip(checker.ENDS, codes):
        if code is not None and code not in checker.CODES:
            say("%s ended with %d" % (name, code))
    result.gap_ms = max([r.get("longest_gap_ms", 0.0) for r in reports])
    errors = [r["error_ns"] / 1e9 for r in reports if r.get("error_ns")]
    if errors and fault_time:
        result.error_s = min(errors) - fault_time - STANDSTILL.seconds(fault_time, min(errors))
    moves = fabric.records("switched", *checker.ENDS)
    result.switch_us = max([m["us"] for m in moves], default=0)

    kind = cell.kind
    result.spurious = bool(moves) and kind in ("clean", "idle_backup", "peer_stock", "peer_stock_pause")
    is_unproven = mode == "exact" and deaths(cell)
    passes = must_pass(cell, mode) or (kind == "early_fault" and result.met and not is_unproven)
    if passes and codes != (0, 0) and not result.problems:
        say("an error reached the program")
    if kind in MOVING and codes == (0, 0) and not switched(fabric, cell):
        say("not every QP switched")
    if comes_back(cell) and codes == (0, 0) and not switched(fabric, cell, 2):
        say("not every QP came back to its default NIC")
    if wrong := fabric.wrong_access(*checker.ENDS):
        say(wrong)
    if must_fail(cell) and codes[0] == 0:
        say("the program saw no error")
    if must_fail(cell) and not stock_silence and result.error_s > cells.ERROR_BOUND:
        say("the error came only after %.1f s" % result.error_s)


def run_cell(build, cell, directory, env=None):
    """Runs a cell, and repeats it when its QPs broke before they had found their peers. That happens when
    the machine gives a host no processor for 70 ms; the layer cannot mask it."""
    STANDSTILL.begin()
    for attempt in range(3):
        shutil.rmtree(directory, ignore_errors=True)  # event records are appended to old ones
        result = run_once(build, cell, directory, env)
        result.repeated = attempt
        broke_early = cell.kind in ALWAYS_SHIFT and cell.kind != "early_fault" and not result.met
        if not result.problems or not broke_early or checker.VIOLATION in result.codes:
            break
    return result


def run_once(build, cell, directory, env):
    os.makedirs(directory, exist_ok=True)
    if cell.kind == "idle_backup":
        # The default stays good here. With the short timeout a host that gets no processor for 70 ms
        # would look dead, and its traffic would turn to the backup, which really is dead.
        env = dict(env or {}, SHIFT_RC_TIMEOUT_MAX="16")
    if cell.kind in HEALING:
        env = dict(env or {}, SHIFT_FAILBACK_MS="200")
    result = Result(cell)
    begun = time.monotonic()
    mode = (env or {}).get("SHIFT_MODE", "relaxed")
    with beside.stock_beside(build, cell, directory) as stock, Fabric(build, directory) as fabric:
        witness = witness_begin(fabric, cell, mode, env)
        server, client = start_pair(fabric, cell, env)
        fault_time = None
        if client is None:
            result.problems.append("the server did not start")
        elif cell.fault:
            fault_time = inject(fabric, cell, client, stock, result)
        if client is not None:
            end_ns = settle(fabric, cell, client)
            client_code = client.finish(45)
            result.codes = (client_code, server.finish(15))
            judge(fabric, cell, result, fault_time, mode)
        if witness is not None:
            result.problems += witness_end(cell, mode, witness)
            result.witnessed = witness.is_met
        if stock is not None:
            stock.end()
            if result.ok() and result.codes == (0, 0):
                result.pause = beside.measure(fabric, cell, stock, end_ns)
    result.seconds = time.monotonic() - begun
    if result.problems:
        write_json(os.path.join(directory, "cell.json"), dataclasses.asdict(result))
    return result
