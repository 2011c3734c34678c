"""
Base of the tests of failover: faults, the layer's event records, and tests that need a process of their own.

A command of the user's makes the faults, since only the user knows how: the environment variable
RDMA_TEST_FAULT_CMD names it, and it is called with a fault, an RDMA device and a port. It exits with 0 when the
fault is there, and with 77 when it cannot make it; then it has said why, and the test is skipped.
"""

import atexit
import functools
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

from tests.base import RDMATestCase
import pyverbs.device as d

try:
    import pyverbs.enums as e
except ImportError:  # the name of the module in newer releases
    import pyverbs.libibverbs_enums as e

FAULT_CMD = os.environ.get('RDMA_TEST_FAULT_CMD')
UNDO = {'link-down': 'link-up', 'kill': 'revive', 'drop-acks': 'heal', 'drop-data': 'heal'}
CANNOT = 77
NO_LAYER = 'The layer is not there: it wrote no event records'
# Exit codes of processes, as those of the tests of rdmacm.
PASSED, FAILED, SKIPPED = 0, 2, 5
# Nothing here takes nearly as long: these seconds only end what would hang.
BOUND = int(os.environ.get('RDMA_TEST_SHIFT_BOUND', '30'))

# What may tell of each fault first. A peer or a neighbour only says what another queue pair has noticed.
HEARSAY = {'peer', 'neighbour'}
TOLD = {'completion', 'post', 'port-event', 'device-event', 'link-state', 'address'}
DETECTORS = {'link-down': TOLD, 'kill': TOLD, 'drop-acks': {'completion'}, 'drop-data': {'completion'},
             'way back': {'probe'}}


def _record_events():
    """The layer reads its settings when a process first uses it, so this must come before a device is opened."""
    if FAULT_CMD and 'SHIFT_EVENTS' not in os.environ:
        folder = tempfile.mkdtemp(prefix='rdma-shift-')
        os.environ['SHIFT_EVENTS'] = os.path.join(folder, 'events')
        owner = os.getpid()
        atexit.register(lambda: os.getpid() == owner and shutil.rmtree(folder, ignore_errors=True))


_record_events()


class EventRecords:
    """The layer's event records since this object was made: a line of JSON each."""

    def __init__(self):
        self.path = os.environ['SHIFT_EVENTS']
        self.start = os.path.getsize(self.path) if os.path.exists(self.path) else 0

    def find(self, event=None, qp=None, pid=None):
        if not os.path.exists(self.path):
            return []
        with open(self.path, 'rb') as file:
            file.seek(self.start)
            lines = file.read().split(b'\n')[:-1]
        return [record for record in map(json.loads, lines)
                if record['pid'] == (pid or os.getpid()) and event in (None, record['event'])
                and qp in (None, record.get('qp'))]


def wait_until(condition, seconds=BOUND):
    """
    Waits for a condition.
    :return: What the condition returned last.
    """
    deadline = time.perf_counter() + seconds
    while True:
        result = condition()
        if result or time.perf_counter() > deadline:
            return result
        time.sleep(0.002)


def alone_test():
    """
    :return: The name of the one test that this process runs, if it was made for that.
    """
    return os.environ.get('RDMA_TEST_SHIFT_ALONE')


def alone(**settings):
    """
    Decorates a test that runs in a new process, because a setting has to be there before the first use of RDMA, or
    because the device dies for the whole process.
    :param settings: Environment variables of the process.
    """
    def outer(func):
        @functools.wraps(func)
        def inner(instance):
            if alone_test() == instance.id():
                return func(instance)
            return instance.run_alone(instance.id(), settings)
        return inner
    return outer


class ShiftTestCase(RDMATestCase):
    """
    A test with protected queue pairs. A subclass has the tests; all faults are undone after each.
    """
    # Why no test can run, once one of them has found that out.
    layer_missing = None

    def setUp(self):
        if not FAULT_CMD:
            raise unittest.SkipTest('Faults need a command: RDMA_TEST_FAULT_CMD is not set')
        if ShiftTestCase.layer_missing:
            raise unittest.SkipTest(ShiftTestCase.layer_missing)
        if alone_test():
            # Nothing is opened here, so that the test decides what the first use of RDMA finds.
            self.dev_name, self.ib_port = self.config['dev'], self.config['port']
            self.gid_index, self.ip_addr = self.config['gid'], self.config['ip_addr']
            self.dev_info = {'dev_name': self.dev_name, 'ib_port': self.ib_port, 'gid_index': self.gid_index}
        else:
            super().setUp()
            active = wait_until(self.port_is_active)
            self.assertTrue(active, f'Port {self.ib_port} of {self.dev_name} is not active')
        self.records = EventRecords()
        self.undone = set()

    def port_is_active(self):
        ctx = d.Context(name=self.dev_name)
        state = ctx.query_port(self.ib_port).state
        ctx.close()
        return state == e.IBV_PORT_ACTIVE

    # Faults

    def undo_at_end(self, fault, dev_name=None):
        """
        Sees to it that a fault is undone, also one that another process makes.
        """
        undo = (UNDO.get(fault), dev_name or self.dev_name)
        if undo[0] and undo not in self.undone:
            self.undone.add(undo)
            self.addCleanup(self.fault, *undo)

    def fault_start(self, fault, dev_name=None):
        """
        Starts to make a fault, while traffic goes on. The test must call fault_wait().
        :param fault: The name of the fault.
        :param dev_name: The device, the one under test by default.
        :return: The process of the command.
        """
        dev_name = dev_name or self.dev_name
        self.undo_at_end(fault, dev_name)
        return subprocess.Popen([*shlex.split(FAULT_CMD), fault, dev_name, str(self.ib_port)],
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                universal_newlines=True)

    @staticmethod
    def fault_wait(process):
        output = process.communicate(timeout=2 * BOUND)[0].strip()
        if process.returncode == CANNOT:
            raise unittest.SkipTest(output or 'The command cannot make this fault')
        if process.returncode:
            raise RuntimeError(f'{process.args} failed with {process.returncode}: {output}')

    def fault(self, fault, dev_name=None):
        self.fault_wait(self.fault_start(fault, dev_name))

    # Protection

    def await_protection(self, *players):
        """
        A fault is masked from the moment on when each queue pair has a second path that was tried.
        """
        def qps_are_armed():
            return all(self.records.find('armed', qp) or self.records.find('unprotected', qp)
                       for player in players for qp in player.qps_num)

        wait_until(lambda: self.records.find() or qps_are_armed(), BOUND / 10)
        self.require_records()
        wait_until(qps_are_armed)
        for record in self.records.find('unprotected'):
            raise unittest.SkipTest(f'A queue pair is not protected: {record["cause"]}')
        self.assertTrue(qps_are_armed(), 'No second path became ready')

    def require_records(self):
        if not self.records.find():
            ShiftTestCase.layer_missing = NO_LAYER
            raise unittest.SkipTest(NO_LAYER)

    def moves(self, qp):
        """
        :return: The changes of path of a queue pair: each with the device that it left, the one that it went to,
                 and what noticed first. A record names only the second; the first is that of the record before.
        """
        at, moves = self.dev_name, []
        for record in self.records.find('switched', qp):
            moves.append((at, record['member'], record['detector']))
            at = record['member']
        return moves

    def await_moves(self, players, count):
        """
        Waits until all queue pairs have changed their path so many times, or have failed.
        """
        qps = [qp for player in players for qp in player.qps_num]
        wait_until(lambda: all(len(self.moves(qp)) >= count or self.records.find('failed', qp) for qp in qps))

    def assert_moves(self, players, *reasons):
        """
        Checks that each queue pair has changed its path so often, each time to another device, and back to its own
        on the way back, and that something has noticed each fault itself.
        :param players: The players whose queue pairs are checked; they are in this process.
        :param reasons: Names of faults, or 'way back'.
        """
        qps = [qp for player in players for qp in player.qps_num]
        self.await_moves(players, len(reasons))
        self.assertEqual([], self.records.find('failed'), 'A queue pair has failed')
        for qp in qps:
            self.assertEqual(len(reasons), len(self.moves(qp)), f'{self.moves(qp)} for {reasons}')
        for number, reason in enumerate(reasons):
            noticed = set()
            for qp in qps:
                left, reached, detector = self.moves(qp)[number]
                noticed.add(detector)
                if reason == 'way back':
                    self.assertEqual(self.dev_name, reached)
                self.assertNotEqual(left, reached)
            self.assert_noticed(noticed, reason)

    def assert_noticed(self, detectors, reason, everybody=True):
        """
        Checks that something has noticed what happened, and that it was nothing else.
        :param detectors: What the queue pairs say.
        :param everybody: Whether these are all queue pairs; one of several may have only heard of it.
        """
        self.assertLessEqual(detectors, DETECTORS[reason] | HEARSAY, reason)
        if everybody:
            self.assertFalse(detectors <= HEARSAY, f'{detectors}: nobody has noticed the {reason}')

    # Processes

    def run_new(self, what, name, settings):
        """
        Runs a test or a function of these tests in a new Python.
        :param what: 'test' or 'call'.
        :param name: Its full name.
        :param settings: Environment variables for it.
        :return: The exit code, and what it printed.
        """
        config = dict(self.config, dev=self.dev_name, port=self.ib_port, gid=self.gid_index, ip_addr=self.ip_addr)
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'shift_alone.py')
        try:
            done = subprocess.run([sys.executable, script, what, name, json.dumps(config)],
                                  env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path), **settings),
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  universal_newlines=True, timeout=4 * BOUND)
        except subprocess.TimeoutExpired as ex:
            return FAILED, f'{ex}: {ex.stdout}'
        return done.returncode, done.stdout.strip()

    def run_alone(self, test, settings):
        code, output = self.run_new('test', test, dict(settings, RDMA_TEST_SHIFT_ALONE=test))
        if code == SKIPPED:
            reason = output.split('\n')[-1]
            ShiftTestCase.layer_missing = reason if reason == NO_LAYER else None
            raise unittest.SkipTest(reason)
        if code != PASSED:
            for undo in sorted(set(UNDO.values())):
                self.addCleanup(self.fault, undo)
            self.fail(output)
