"""
Tests failover between two processes: queue pairs that these connect themselves or by rdma_cm, and a peer without
the layer.
"""

import ipaddress
import multiprocessing as mp
import os
import sys
import time
import traceback
import unittest

from pyverbs.pyverbs_error import PyverbsRDMAError
from pyverbs.cmid import CMEventChannel
from tests.base import RDMACMBaseTest
from tests.rdmacm_utils import CMSyncConnection
from tests.shift_base import BOUND, FAILED, PASSED, SKIPPED, EventRecords, ShiftTestCase, alone, e, wait_until
from tests.shift_utils import Receiver, Sender, ShiftRC, async_event, bytes_of, dispatch
import pyverbs.device as d

SIDES = ('passive', 'active')
WINDOW = 8


class ShiftProcessesTest(ShiftTestCase):
    """
    Two processes that send to each other.
    """
    def run_processes(self, flow, *args):
        """
        Runs a method of this test in two new processes.
        :param flow: The method; it is given the side and the further arguments.
        """
        ctx = mp.get_context('fork')
        self.syncer = ctx.Barrier(len(SIDES), timeout=BOUND)
        self.notifiers = {side: ctx.Queue() for side in SIDES}  # what each side tells the other
        self.fault_is_there = ctx.Event()
        self.reasons = ctx.SimpleQueue()
        processes = {side: ctx.Process(target=self.run_side, args=(flow, side, *args)) for side in SIDES}
        for process in processes.values():
            process.start()
        for process in processes.values():
            process.join(2 * BOUND)
        codes = {side: process.exitcode for side, process in processes.items()}
        for process in processes.values():
            if process.is_alive():
                process.kill()
                process.join()
        if SKIPPED in codes.values():
            raise unittest.SkipTest(self.reasons.get())
        self.assertEqual({side: PASSED for side in SIDES}, codes, 'Exit codes; None is a side that hung')

    def run_side(self, flow, side, *args):
        code = FAILED
        try:
            self.records = EventRecords()
            flow(side, *args)
            code = PASSED
        except unittest.SkipTest as ex:
            self.reasons.put(str(ex))
            code = SKIPPED
        except Exception:
            # A side that skips the test breaks off, which makes the other fail.
            if self.reasons.empty():
                print(f'{side}: {traceback.format_exc()}', flush=True)
        if code != PASSED:
            self.syncer.abort()
        sys.exit(code)

    def tell(self, side, what):
        self.notifiers[side].put(what)

    def hear(self, side):
        return self.notifiers[SIDES[side == 'passive']].get(timeout=BOUND)

    def connect(self, side):
        """
        Makes a player, and connects it with the one of the other process.
        """
        player = ShiftRC(**self.dev_info)
        self.tell(side, (player.psns, player.qps_num, player.address))
        psns, qps_num, player.peer_address = self.hear(side)
        player.pre_run(psns, qps_num)
        sender, receiver = Sender(self, player, 'send_imm'), Receiver(self, player, 'send_imm')
        self.syncer.wait()
        return player, sender, receiver

    def step(self, player, sender, receiver):
        if sender.next - sender.done < WINDOW:
            sender.post()
        dispatch(player)
        self.assertEqual([], sender.errors + receiver.errors)

    def finish(self, side, player, sender, receiver, more=20):
        """
        Sends some more messages, and waits until each side has all of the other's.
        """
        goal = sender.next + more
        self.tell(side, goal)
        coming, deadline = None, time.perf_counter() + BOUND
        while sender.done != goal or receiver.seen != coming:
            if sender.next < goal and sender.next - sender.done < WINDOW:
                sender.post()
            dispatch(player)
            self.assertEqual([], sender.errors + receiver.errors)
            self.assertLess(time.perf_counter(), deadline, f'{vars(sender)} {vars(receiver)}')
            if coming is None and sender.done == goal:
                coming = self.hear(side)
        self.syncer.wait()
        self.assertFalse(dispatch(player), 'There were too many completions')
        self.syncer.wait()  # from here on the other side may send again

    def both_ways(self, side, fault):
        player, sender, receiver = self.connect(side)
        self.await_protection(player)
        self.finish(side, player, sender, receiver)
        if side == 'active':
            process = self.fault_start(fault)
            while process.poll() is None:
                self.step(player, sender, receiver)
            self.fault_is_there.set()
            self.fault_wait(process)
        while not self.fault_is_there.is_set():
            self.step(player, sender, receiver)
        self.finish(side, player, sender, receiver, 40)
        self.await_moves([player], 1)
        self.finish(side, player, sender, receiver)
        # Either side may have it from the other.
        ((left, reached, detector),) = self.moves(player.qp.qp_num)
        self.assertEqual(self.dev_name, left)
        self.assertNotEqual(left, reached)
        self.tell(side, detector)
        self.assert_noticed({detector, self.hear(side)}, fault)
        self.assertEqual([], self.records.find('failed'))
        player.ctx.close()
        # A process that ends is a fault of its own for the other.
        self.syncer.wait()

    def test_link_down(self):
        self.undo_at_end('link-down')
        self.run_processes(self.both_ways, 'link-down')

    def test_drop_acks(self):
        self.undo_at_end('drop-acks')
        self.run_processes(self.both_ways, 'drop-acks')

    @alone()
    def test_kill(self):
        self.undo_at_end('kill')
        self.run_processes(self.both_ways, 'kill')

    def with_stock(self, side):
        """
        Both sides see what they see without the layer, of which the passive side has none.
        """
        if side == 'passive':
            os.environ['SHIFT_DISABLE'] = '1'
        player, sender, receiver = self.connect(side)
        self.finish(side, player, sender, receiver)
        if side == 'active':
            unprotected = wait_until(lambda: self.records.find('unprotected', player.qp.qp_num), BOUND / 2)
            self.require_records()
            self.assertTrue(unprotected, 'The layer has not given up the search for a peer')
            self.finish(side, player, sender, receiver)
            self.fault('link-down')
        else:
            self.finish(side, player, sender, receiver)
        self.syncer.wait()
        self.assertEqual(e.IBV_EVENT_PORT_ERR, async_event(player.ctx, BOUND))
        self.assertEqual(e.IBV_PORT_DOWN, player.ctx.query_port(self.ib_port).state)
        first = sender.next
        for _ in range(4):
            sender.post()
        wait_until(lambda: dispatch(player) and len(sender.errors) == 4)
        self.assertEqual([first, first + 1, first + 2, first + 3], [done.wr_id for done in sender.errors])
        statuses = [done.status for done in sender.errors]
        self.assertIn(statuses[0], (e.IBV_WC_RETRY_EXC_ERR, e.IBV_WC_LOC_QP_OP_ERR))
        self.assertEqual(3 * [e.IBV_WC_WR_FLUSH_ERR], statuses[1:])
        self.tell(side, statuses)
        self.assertEqual(self.hear(side), statuses, 'The side with the layer gets other errors than the other one')
        self.assertEqual(e.IBV_QPS_ERR, player.qp.query(e.IBV_QP_STATE)[0].qp_state)
        # The side without the layer has written no records at all, and the other one none of a second path.
        self.assertEqual(side == 'active', bool(self.records.find()))
        for event in ('armed', 'switched', 'failed'):
            self.assertEqual([], self.records.find(event))
        self.syncer.wait()

    @alone(SHIFT_RENDEZVOUS_MS='1000')
    def test_peer_without_layer(self):
        self.undo_at_end('link-down')
        self.run_processes(self.with_stock)


class CMPlayer:
    """What await_protection() and assert_moves() ask of a player."""
    def __init__(self, qp_num):
        self.qps_num = [qp_num]


class ShiftCMTest(ShiftTestCase, RDMACMBaseTest):
    """
    Queue pairs that rdma_cm connects.
    """
    MESSAGES = 12

    def setUp(self):
        super().setUp()
        try:
            CMEventChannel().close()
        except PyverbsRDMAError as ex:
            raise unittest.SkipTest(f'rdma_cm is not available: {ex}')

    def _get_ip_mac(self, dev, port, idx):
        # The GID holds the address, while the base class looks for a network device only where hardware has it.
        super()._get_ip_mac(dev, port, idx)
        ctx = d.Context(name=dev)
        gid = ctx.query_gid(port, idx).gid if idx is not None else ''
        ctx.close()
        address = ipaddress.IPv6Address(gid).ipv4_mapped if gid else None
        if address:
            self.args[-1][3] = str(address)

    def cm_traffic(self, connection_resources=None, passive=None, fault=None, **kwargs):
        try:
            self.records = EventRecords()
            connection = connection_resources(ip_addr=self.ip_addr, syncer=self.syncer, notifier=self.notifier,
                                              passive=passive, **kwargs)
            connection.establish_connection()
            cmid = connection.cm_res.child_id if passive else connection.cm_res.cmid
            player = CMPlayer(cmid.qpn)
            self.await_protection(player)
            self.ping_pong(cmid, connection.cm_res.mr, passive, 0)
            if not passive:
                self.fault(fault)
            self.syncer.wait()
            self.ping_pong(cmid, connection.cm_res.mr, passive, self.MESSAGES)
            self.await_moves([player], 1)
            self.ping_pong(cmid, connection.cm_res.mr, passive, 2 * self.MESSAGES)
            ((left, reached, detector),) = self.moves(cmid.qpn)
            self.assertEqual(self.dev_name, left)
            self.assertNotEqual(left, reached)
            self.assert_noticed({detector}, fault, everybody=False)
            self.assertEqual([], self.records.find('failed'))
            self.syncer.wait()
            connection.disconnect()
        except Exception as ex:
            self._rdmacm_exception_handler(passive, ex)

    def ping_pong(self, cmid, mr, passive, first):
        """
        Sends messages one by one, each of which the other side answers.
        """
        for number in range(first, first + self.MESSAGES):
            for sends in (not passive, passive):
                question = bytes_of('send', int(sends == passive), number)[:1024]
                if sends:
                    self.syncer.wait()
                    mr.write(question, len(question))
                    cmid.post_send(mr, length=len(question))
                    done = cmid.get_send_comp()
                else:
                    cmid.post_recv(mr)
                    self.syncer.wait()
                    done = cmid.get_recv_comp()
                    self.assertEqual(len(question), done.byte_len)
                    self.assertEqual(question, mr.read(len(question), 0))
                self.assertEqual(e.IBV_WC_SUCCESS, done.status)

    def test_link_down(self):
        self.undo_at_end('link-down')
        self.two_nodes_rdmacm_traffic(CMSyncConnection, self.cm_traffic, fault='link-down')
