# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, nonecheck=True
"""`transaction_loop_python`, compiled: times are C integers, records go into C arrays, the return of a body raises no exception."""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.object cimport PyObject
from cpython.exc cimport PyErr_CheckSignals
from cpython.ref cimport Py_DECREF, Py_INCREF
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from libc.errno cimport EINTR, errno
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memset, strerror
from posix.fcntl cimport O_CLOEXEC, O_RDONLY, open as c_open
from posix.time cimport CLOCK_MONOTONIC, CLOCK_REALTIME, clock_gettime, timespec
from posix.unistd cimport close as c_close, pread

from proveout.agent.engines.wire_native cimport Layout, Prepared, Wire, none_is_held
from proveout.agent.load.loop.arrival_schedule_native cimport Schedule

from functools import lru_cache
from types import MethodWrapperType
import sys

import numpy as np

from proveout.agent.engines.driver_contract import FailureKind, StatementFailure
from proveout.agent.load.loop import client_delays as handling, transaction_loop_python
from proveout.dsl.workloads.random_streams import RowSource

cdef extern from "Python.h":
    ctypedef enum PySendResult:
        PYGEN_RETURN, PYGEN_ERROR, PYGEN_NEXT
    PySendResult PyIter_Send(object body, object value, PyObject** result) except PYGEN_ERROR
    void* PyInterpreterState_Get()
    void* PyInterpreterState_ThreadHead(void* interpreter)
    void* PyThreadState_Next(void* thread)

cdef extern from "sys/epoll.h" nogil:
    ctypedef union epoll_data:
        int fd
    cdef struct epoll_event:
        uint32_t events
        epoll_data data
    int epoll_wait(int epoll, epoll_event* events, int events_max, int timeout_ms)

cdef extern from "sys/socket.h" nogil:
    cdef struct iovec:
        void* iov_base
        size_t iov_len
    cdef struct msghdr:
        iovec* msg_iov
        size_t msg_iovlen
        void* msg_control
        size_t msg_controllen
    cdef struct cmsghdr:
        int cmsg_level, cmsg_type
    ssize_t recvmsg(int fd, msghdr* message, int flags)
    cmsghdr* CMSG_FIRSTHDR(msghdr* message)
    cmsghdr* CMSG_NXTHDR(msghdr* message, cmsghdr* header)
    unsigned char* CMSG_DATA(cmsghdr* header)
    int MSG_DONTWAIT, MSG_PEEK, SOL_SOCKET

cdef extern from *:
    """
    static void prefetch(const void *at, int lines) {
        for (int i = 0; i < lines; i++)
            __builtin_prefetch((const char *)at + 64 * i);
    }
    """
    void prefetch(const void* at, int lines) noexcept nogil

cdef enum:
    EVENTS_MAX = 256
    CONTROL_WORDS = 16
    CERTAIN = 1 << 16  # every read right after a send finds the answer
    RARE = 1 << 14  # below that share such a read costs more than it saves,
    PASSED = 64  # and one of so many is tried

cdef int WAIT = transaction_loop_python.WAIT, NEXT = transaction_loop_python.NEXT, SETTLE = transaction_loop_python.SETTLE, TICK = transaction_loop_python.TICK, HELD = transaction_loop_python.HELD
cdef object LOGICAL = FailureKind.LOGICAL
cdef int ROLLED_BACK = transaction_loop_python.ROLLED_BACK
cdef int SPECULATION = transaction_loop_python.SPECULATION, HELD_FROM = transaction_loop_python.HELD_FROM
cdef int SO_TIMESTAMPNS = handling.SO_TIMESTAMPNS
cdef int64_t BATCHES_PER_TICK = handling.BATCHES_PER_TICK, PER_BATCH = handling.PER_BATCH, STRIDE_START = handling.STRIDE_START, STRIDE_MAX = handling.STRIDE_MAX
cdef int64_t SLEPT_NS = handling.SLEPT_NS
cdef bytes SCHEDSTAT = handling.SCHEDSTAT.encode()


cdef class Times:
    """Records of one transaction type and outcome: (intended, started, ended), ns, one after the other."""

    cdef int64_t* data
    cdef Py_ssize_t count, size

    def __dealloc__(self):
        free(self.data)

    def __len__(self):
        return self.count

    def extend(self, times):
        """Add a record."""
        intended, started, ended = times
        self.add(intended, started, ended)

    def take(self):
        """Take the records since the last call, as native int64."""
        taken = PyBytes_FromStringAndSize(<char*>self.data, self.count * sizeof(int64_t))
        self.count = 0
        return taken

    cdef int add(self, int64_t intended, int64_t started, int64_t ended) except -1:
        cdef int64_t* larger
        if self.count + 3 > self.size:
            larger = <int64_t*>realloc(self.data, (self.size * 2 + 96) * sizeof(int64_t))
            if larger == NULL:
                raise MemoryError
            self.data, self.size = larger, self.size * 2 + 96
        self.data[self.count] = intended
        self.data[self.count + 1] = started
        self.data[self.count + 2] = ended
        self.count += 3
        return 0


cdef class AcknowledgedTimes(Times):
    """See `transaction_loop_python.AcknowledgedTimes`."""

    cdef Times into
    cdef public int64_t acknowledged, repeated, committed_ns

    def __init__(self, Times into):
        self.into = into
        self.acknowledged = self.repeated = self.committed_ns = 0

    cdef int add(self, int64_t intended, int64_t started, int64_t ended) except -1:
        self.acknowledged += 1
        if started == self.committed_ns:
            self.repeated += 1
        return self.into.add(intended, started, ended)


cdef class Script:
    """See `transaction_loop_python.Script`."""

    cdef object begin, commit, rollback
    cdef list prepared, places
    cdef readonly Py_ssize_t length
    cdef int64_t* bounds  # of each step: least, most, keeps

    def __cinit__(self, begin, commit, rollback, steps):
        self.length = len(steps)
        self.bounds = <int64_t*>malloc(3 * self.length * sizeof(int64_t))
        if self.bounds == NULL:
            raise MemoryError

    def __init__(self, begin, commit, rollback, steps):
        self.begin, self.commit, self.rollback = begin, commit, rollback
        self.prepared, self.places = [], []
        for i, (prepared, places, keeps, least, most) in enumerate(steps):
            self.prepared.append(prepared)
            self.places.append(places)
            self.bounds[3 * i] = least
            self.bounds[3 * i + 1] = most
            self.bounds[3 * i + 2] = keeps

    def __dealloc__(self):
        free(self.bounds)

    cdef bint met(self, Py_ssize_t step, TerminalState terminal) except -1:
        """Whether the answered step had the required number of rows. Keeps the values that later steps need."""
        cdef Wire wire = terminal.wire
        cdef int64_t count = terminal.held.count if wire is None else wire.count
        cdef int64_t* bounds = self.bounds + 3 * step
        if not bounds[0] <= count <= bounds[1]:
            return False
        if bounds[2]:
            if wire is not None:
                return wire.first(bounds[2], terminal.kept)
            rows = terminal.held.rows()
            if not rows:
                return False
            terminal.kept.extend(rows[0][:bounds[2]])
        return True

    cdef tuple arguments(self, Py_ssize_t step, TerminalState terminal):
        """Arguments of a step: values kept from earlier steps, and values drawn for it."""
        cdef tuple drawn = <tuple?>(<tuple?>terminal.inputs)[step]
        cdef tuple places = <tuple>self.places[step]
        cdef list kept = terminal.kept
        cdef Py_ssize_t i, place, held
        cdef object value
        if places is None:
            return drawn
        held = len(kept)
        made = PyTuple_New(len(places))
        for i in range(len(places)):
            place = places[i]
            value = kept[place] if place < held else drawn[place - held]
            Py_INCREF(value)
            PyTuple_SET_ITEM(made, i, value)
        return made

    def run(self, TerminalState terminal, bint carried):
        """See `transaction_loop_python.Script`."""
        cdef object session = terminal.held
        cdef object execute = session.execute
        cdef Py_ssize_t step
        execute(terminal.restart(self), ())
        for step in range(self.length):
            if carried and step == self.length - 1:
                session.execute_committing(self.prepared[step], self.arguments(step, terminal))
                return 0 if self.met(step, terminal) else 1
            execute(self.prepared[step], self.arguments(step, terminal))
            if not self.met(step, terminal):
                execute(self.rollback, ())
                return 1
        execute(self.commit, ())
        return 0


cdef class KindState:
    """The fields of a `Kind` that the hot loop reads.

    `layouts`: of inputs that are rows of arrays, those of each statement; None if they are Python values.
    """

    cdef const uint8_t* row  # the next one, of `left` ones of `batch`
    cdef Py_ssize_t left, size
    cdef tuple layouts
    cdef object statement
    cdef public Script script
    cdef public bint bare
    cdef public int64_t least, most
    cdef Times ok, failed
    cdef public object start
    cdef object source, drawn, batches, batch
    cdef readonly object times

    def __init__(self, times):
        self.times = times
        self.ok, self.failed = times
        self.statement = self.source = self.drawn = self.start = self.script = None
        self.layouts = self.batches = None
        self.bare = False
        self.least, self.most = 1, sys.maxsize
        self.left = self.size = 0

    @property
    def inputs(self):
        """The source of a transaction's inputs. If it is the `__next__` of an iterator, the iterator is advanced without a Python call."""
        return self.source

    @inputs.setter
    def inputs(self, source):
        self.source = source
        bound = isinstance(source, MethodWrapperType) and source.__name__ == "__next__"
        self.drawn = source.__self__ if bound else None

    @property
    def prepared(self):
        """The only statement of a bare transaction, or the first one."""
        return self.statement

    @prepared.setter
    def prepared(self, statement):
        self.statement = statement
        if self.layouts is None and isinstance(statement, Prepared) and isinstance(self.drawn, RowSource):
            dtype = self.drawn.dtype
            parts = [(dtype, 0)] if self.bare else [dtype.fields[name][:2] for name in dtype.names]
            if self.bare or all([part[0].names is not None for part in parts]):  # not one statement with a body
                self.layouts = tuple([layout(*part) for part in parts])
                self.batches, self.size = self.drawn.batches, dtype.itemsize
                self.fill()  # before the load

    cdef int draw(self, TerminalState terminal) except -1:
        """Draw the inputs of the terminal's transaction."""
        if self.layouts is None:
            terminal.inputs = self.source() if self.drawn is None else next(self.drawn)
            return 0
        if not self.left:
            self.fill()
        terminal.row, terminal.inputs = self.row, self  # its batch stays until the next draw
        self.row += self.size
        self.left -= 1
        return 0

    cdef int fill(self) except -1:
        cdef const uint8_t[::1] rows
        self.batch = next(self.batches)
        rows = self.batch.view(np.uint8)
        self.row, self.left = &rows[0], len(self.batch)
        return 0


layout = lru_cache(maxsize=1024)(Layout)
"""Terminals share theirs, which then stay in the processor's caches."""


cdef class Mix:
    """See `transaction_loop_python.Mix`."""

    cdef const uint16_t* index  # the next one, of `left` ones of `batch`
    cdef Py_ssize_t left
    cdef list kinds
    cdef KindState only
    cdef object batches, batch

    def __init__(self, kinds, batches):
        self.kinds, self.batches = [<KindState?>kind for kind in kinds], batches
        self.only = self.kinds[0] if len(self.kinds) == 1 else None
        if self.only is None:
            self.fill()

    def __iter__(self):
        return self

    def __next__(self):
        return self.next()

    cdef KindState next(self):
        if self.only is not None:
            return self.only
        if not self.left:
            self.fill()
        self.left -= 1
        self.index += 1
        return <KindState>self.kinds[self.index[-1]]

    cdef int fill(self) except -1:
        cdef const uint16_t[::1] indexes = next(self.batches)
        self.batch, self.index, self.left = indexes, &indexes[0], len(indexes)
        return 0


cdef class TerminalState:
    """The fields of a `Terminal` that the hot loop reads and writes."""

    cdef Wire wire  # the session, if it is compiled
    cdef public object body
    cdef public KindState kind
    cdef Mix mix  # that of `draw`, if it is one
    cdef public int64_t intended_ns, started_ns, ended_ns
    cdef public Py_ssize_t at
    cdef public int outcome
    cdef public bint restless, timed, busy, rolling_back
    cdef const uint8_t* row  # the inputs, where they are a row of the kind's batch
    cdef public object inputs
    cdef public list kept
    cdef public dict prepared
    cdef public int64_t pending_ns, until_ns, number
    cdef public object fires, pauses
    cdef object held, drawn

    def __init__(self):
        self.session = self.body = self.kind = self.inputs = self.fires = self.pauses = None
        self.prepared = {}
        self.draw = iter(())
        self.intended_ns = self.started_ns = self.ended_ns = self.pending_ns = self.until_ns = self.number = 0
        self.outcome = 0
        self.restless = self.timed = self.busy = self.rolling_back = False
        self.kept, self.at = [], 0

    @property
    def session(self):
        """The connection; None without one."""
        return self.held

    @session.setter
    def session(self, session):
        self.held, self.wire = session, session if isinstance(session, Wire) else None
        if self.wire is not None:
            self.wire.share()

    @property
    def draw(self):
        """The source of kinds."""
        return self.drawn

    @draw.setter
    def draw(self, draw):
        self.drawn, self.mix = draw, draw if isinstance(draw, Mix) else None

    cdef KindState next(self):
        return <KindState?>next(self.drawn) if self.mix is None else self.mix.next()

    cpdef object restart(self, Script script):
        """Prepare for the first statement of a script; returns that statement, BEGIN."""
        self.body = None
        self.at = 0
        if self.kept:
            self.kept = []
        return script.begin


cdef inline int64_t monotonic_ns() noexcept:
    return clock_ns(CLOCK_MONOTONIC)


cdef inline int64_t clock_ns(int clock) noexcept:
    cdef timespec now
    clock_gettime(clock, &now)
    return <int64_t>now.tv_sec * 1_000_000_000 + now.tv_nsec


cdef int64_t arrival_ns(int fd) noexcept:
    """See `handling.arrival_ns`."""
    cdef msghdr message
    cdef iovec part
    cdef char byte
    cdef int64_t control[CONTROL_WORDS]
    cdef cmsghdr* header
    cdef timespec* stamp
    memset(&message, 0, sizeof(message))
    part.iov_base, part.iov_len = &byte, 1
    message.msg_iov, message.msg_iovlen = &part, 1
    message.msg_control, message.msg_controllen = control, sizeof(control)
    if recvmsg(fd, &message, MSG_PEEK | MSG_DONTWAIT) < 0:
        return 0
    header = CMSG_FIRSTHDR(&message)
    while header != NULL:
        if header.cmsg_level == SOL_SOCKET and header.cmsg_type == SO_TIMESTAMPNS:
            stamp = <timespec*>CMSG_DATA(header)
            return <int64_t>stamp.tv_sec * 1_000_000_000 + stamp.tv_nsec
        header = CMSG_NXTHDR(&message, header)
    return 0


cdef class Sampler:
    """See `handling.Sampler`."""

    cdef readonly int64_t answers, stamped
    cdef public bint all_stamped, any_stamped
    cdef int64_t left, stride, drawn, batches, called_ns, returned_ns
    cdef int64_t runqueue_ns, runqueue_returned_ns, waited_ns, round_ns, turns
    cdef int64_t every, first
    cdef uint32_t random
    cdef int schedstat, at_once, passed
    cdef Times samples

    def __init__(self):
        self.answers = self.stamped = self.batches = 0
        self.called_ns = self.returned_ns = self.runqueue_ns = self.runqueue_returned_ns = 0
        self.waited_ns = self.round_ns = self.turns = 0
        self.left = self.drawn = self.every = 1
        self.first = 0
        self.stride = STRIDE_START
        self.all_stamped, self.any_stamped = True, False
        self.random = 1
        self.schedstat = -1
        self.at_once, self.passed = CERTAIN, 0
        self.samples = Times()

    def take(self):
        """Take the samples since the last call, as native int64."""
        return self.samples.take()

    def close(self):
        """Close the descriptor of the kernel's counter."""
        if self.schedstat >= 0:
            c_close(self.schedstat)
            self.schedstat = -1

    def watch(self, fd):
        """See `handling.Sampler.watch`."""
        stamped = handling.request_stamps(fd)
        self.all_stamped, self.any_stamped = self.all_stamped and stamped, self.any_stamped or stamped

    cdef bint found(self, Wire wire) except -1:
        """Read right after a send, if such reads have found answers of late; whether one was complete."""
        cdef bint answered
        if self.at_once < RARE:
            self.passed += 1
            if self.passed % PASSED:
                return False
        answered = wire.get()
        self.at_once += ((CERTAIN if answered else 0) - self.at_once) // 16
        return answered

    cdef void pace(self) noexcept:
        self.stride = min(max((self.batches + self.drawn - self.left) // BATCHES_PER_TICK, 1), STRIDE_MAX)
        self.batches = 0
        self.draw()

    cdef void draw(self) noexcept:
        self.left = self.drawn = 1 + self.below(2 * self.stride - 1)

    cdef int64_t below(self, int64_t bound) noexcept:
        self.random = self.random * 1664525u + 1013904223u  # Numerical Recipes; the upper bits are spread well
        return <int64_t>(self.random >> 8) % bound

    cdef void thin(self, int64_t ready) noexcept:
        """See `handling.Sampler.thin`."""
        self.every = max((ready + PER_BATCH - 1) // PER_BATCH, 1)
        self.first = self.below(self.every)

    cdef void calls(self) noexcept:
        self.runqueue_ns = self.runqueue(&self.turns)
        self.called_ns = monotonic_ns()
        if not self.returned_ns:  # the first batch
            self.returned_ns, self.runqueue_returned_ns = self.called_ns, self.runqueue_ns

    cdef void returns(self, bint sampled) noexcept:
        cdef int64_t turns, now = monotonic_ns(), runqueue_ns = self.runqueue(&turns), in_round_ns
        cdef bint slept
        if sampled:
            in_round_ns = self.runqueue_ns - self.runqueue_returned_ns
            self.waited_ns = runqueue_ns - self.runqueue_ns
            self.round_ns = 0
            slept = turns > self.turns if turns else now - self.called_ns > SLEPT_NS
            if not slept:
                self.round_ns = max(self.called_ns - self.returned_ns - in_round_ns, 0)
                self.waited_ns += in_round_ns
            self.batches += self.drawn
            self.draw()
        self.returned_ns, self.runqueue_returned_ns = now, runqueue_ns

    cdef int64_t late_ns(self, int fd, int64_t index, int64_t ready, int64_t now_ns) noexcept:
        cdef int64_t arrived_ns = arrival_ns(fd) if self.any_stamped else 0
        if arrived_ns:
            self.stamped += self.every
            return max(clock_ns(CLOCK_REALTIME) - arrived_ns, 0)
        return (
            now_ns - self.returned_ns + self.waited_ns + self.round_ns * (2 * (ready - index) - 1) // (2 * ready)
        )

    cdef int64_t runqueue(self, int64_t* turns) noexcept:
        """See `handling.Sampler._runqueue`."""
        cdef char text[64]
        cdef ssize_t length, at = 0
        cdef int64_t waited
        turns[0] = 0
        if self.all_stamped:
            return 0
        if self.schedstat < 0:
            self.schedstat = c_open(<char*>SCHEDSTAT, O_RDONLY | O_CLOEXEC)
        length = pread(self.schedstat, text, sizeof(text), 0)
        number(text, length, &at)
        waited = number(text, length, &at)
        turns[0] = number(text, length, &at)
        return waited


cdef int64_t number(const char* text, ssize_t length, ssize_t* at) noexcept:
    """The number at `at`, which is moved behind it and one more character; 0 at the end."""
    cdef int64_t value = 0
    while at[0] < length and 0x30 <= text[at[0]] <= 0x39:
        value = value * 10 + (text[at[0]] - 0x30)
        at[0] += 1
    at[0] += 1
    return value


cdef inline bint exchange(TerminalState terminal, object prepared, object arguments, Sampler sampler) except -1:
    """Send, and read at once if that is worth it; without Python calls if the session is compiled. Without a sampler,
    only send."""
    if terminal.wire is None:
        if sampler is not None:
            return terminal.held.exchange(prepared, arguments)
        terminal.held.send(prepared, arguments)
        return False
    terminal.wire.put(<Prepared?>prepared, <tuple?>arguments)
    return sampler is not None and sampler.found(terminal.wire)


cdef bint step(TerminalState terminal, Script script, Py_ssize_t at, Sampler sampler) except -1:
    """Send the statement of a step."""
    cdef tuple layouts = terminal.kind.layouts
    if layouts is None:
        return exchange(terminal, script.prepared[at], script.arguments(at, terminal), sampler)
    terminal.wire.put_row(
        <Prepared?>script.prepared[at], <Layout>layouts[at], terminal.row, terminal.kept, script.places[at]
    )
    return sampler.found(terminal.wire)


cdef bint begin(TerminalState terminal, Sampler sampler) except -1:
    """Send the first statement of a transaction whose inputs are drawn; `sampler` as in `exchange`."""
    cdef KindState kind = terminal.kind
    if kind.bare:
        terminal.body = None
        if kind.layouts is None:
            return exchange(terminal, kind.statement, terminal.inputs[1], sampler)
        terminal.wire.put_row(<Prepared>kind.statement, <Layout>kind.layouts[0], terminal.row, None, None)
        return sampler is not None and sampler.found(terminal.wire)
    if kind.script is not None:
        return exchange(terminal, terminal.restart(kind.script), (), sampler)
    terminal.body = kind.start(terminal.inputs)
    request = next(terminal.body)
    return exchange(terminal, terminal.prepared[request[0].name], tuple(request[1]), sampler)


def first(TerminalState terminal):
    """See `transaction_loop_python.first`."""
    terminal.kind.draw(terminal)
    return again(terminal)


def again(TerminalState terminal):
    """See `transaction_loop_python.again`."""
    cdef KindState kind = terminal.kind
    if kind.bare and kind.layouts is not None:
        terminal.body = None
        return kind.statement, (<Layout>kind.layouts[0]).values(terminal.row)
    return transaction_loop_python.again(terminal)


def repeat(TerminalState terminal, object is_over, int64_t end_ns):
    """See `transaction_loop_python.repeat`."""
    cdef int64_t now, started_ns
    cdef int outcome
    cdef KindState kind
    cdef object session = terminal.held, call = session.execute
    while not is_over():
        started_ns = monotonic_ns()
        if started_ns >= end_ns:
            return
        kind = terminal.kind = terminal.next()
        terminal.intended_ns = terminal.started_ns = started_ns
        terminal.busy = True
        kind.draw(terminal)
        if kind.bare:
            call(kind.statement, (<tuple?>terminal.inputs)[1])
            outcome = 0 if kind.least <= <int64_t>session.count <= kind.most else 1
        else:
            outcome = transaction_loop_python.execute(terminal)
        now = monotonic_ns()
        if now >= end_ns:
            terminal.outcome, terminal.ended_ns = outcome, now
            return
        (kind.failed if outcome else kind.ok).add(terminal.intended_ns, terminal.started_ns, now)
        terminal.busy = False


def turns(TerminalState terminal, int64_t limit_ns):
    """See `transaction_loop`."""
    return turn(terminal, limit_ns, Sampler(), False)


cdef int turn(TerminalState terminal, int64_t limit_ns, Sampler sampler, bint holds) except -1:
    cdef int left = SPECULATION, outcome
    cdef int64_t now
    cdef KindState kind
    cdef Script script
    cdef Py_ssize_t at
    cdef PyObject* yielded
    cdef Wire wire = terminal.wire
    cdef int64_t count
    cdef bint answered = terminal.held.receive() if wire is None else wire.get()
    while answered:
        sampler.answers += 1
        if terminal.body is None:
            script = terminal.kind.script
            if script is None:
                count = terminal.held.count if wire is None else wire.count
                outcome = 0 if terminal.kind.least <= count <= terminal.kind.most else 1
            else:
                at = terminal.at
                if at <= script.length:
                    if at and not script.met(at - 1, terminal):
                        terminal.outcome = 1
                        terminal.at = script.length + 1
                        answered = exchange(terminal, script.rollback, (), sampler)
                        continue
                    terminal.at = at + 1
                    if at == script.length:
                        terminal.outcome = 0
                        answered = exchange(terminal, script.commit, (), sampler)
                    else:
                        answered = step(terminal, script, at, sampler)
                    continue
                outcome = terminal.outcome
                if terminal.rolling_back:
                    terminal.rolling_back, outcome = False, 1
        elif PyIter_Send(terminal.body, terminal.held, &yielded) == PYGEN_NEXT:
            request = <object>yielded
            Py_DECREF(request)
            answered = exchange(terminal, terminal.prepared[request[0].name], tuple(request[1]), sampler)
            continue
        else:
            returned = <object>yielded
            Py_DECREF(returned)
            outcome = returned
        now = terminal.ended_ns = monotonic_ns()
        kind = terminal.kind
        if outcome > 1 or now >= limit_ns:
            terminal.outcome = outcome
            return SETTLE if outcome > 1 else TICK
        (kind.failed if outcome else kind.ok).add(terminal.intended_ns, terminal.started_ns, now)
        left -= 1
        if not (terminal.restless and left):
            return NEXT
        kind = terminal.kind = terminal.next()
        terminal.intended_ns = terminal.started_ns = now
        kind.draw(terminal)
        if holds and wire is not None:
            wire.held = True
            begin(terminal, None)
            return HELD
        answered = begin(terminal, sampler)
    return WAIT


cdef int64_t release(list held, object loop, int64_t limit_ns) except -1:
    """Begin the transactions that the turns of a batch have drawn, unless the load is over; returns the limit."""
    cdef int64_t now
    cdef Py_ssize_t i, count = len(held)
    cdef TerminalState terminal
    for i in range(count):
        if i + 2 < count:
            terminal = <TerminalState>held[i + 2]
            prefetch(<void*>terminal.wire, 4)
        if i + 4 < count:
            prefetch(<void*>held[i + 4], 3)
        terminal = <TerminalState>held[i]
        now = monotonic_ns()
        if now >= limit_ns > 0:
            loop.tick(now)
            limit_ns = loop.limit_ns
        if not limit_ns:
            terminal.busy = terminal.wire.held = False
            continue
        terminal.intended_ns = terminal.started_ns = now
        try:
            terminal.wire.release()
        except StatementFailure as failure:
            failed(loop, terminal, failure)
            limit_ns = loop.limit_ns
    none_is_held()
    held.clear()
    return limit_ns


cdef int failed(object loop, TerminalState terminal, object failure) except -1:
    """A turn raised the failure. The rollback of a logical one of a script begins here, as `PolledLoop.failed` does it;
    the rest is the loop's."""
    cdef Script script = terminal.kind.script if terminal.body is None else None
    if script is None or terminal.rolling_back or failure.kind is not LOGICAL:
        loop.failed(terminal, failure)
        return 0
    terminal.rolling_back, terminal.outcome, terminal.at = True, ROLLED_BACK, script.length + 1
    try:
        exchange(terminal, script.rollback, (), None)
    except StatementFailure as lost:
        loop.failed(terminal, lost)
    return 0


cdef int sampled_turn(
    TerminalState terminal, int64_t limit_ns, Sampler sampler, int fd, int64_t index, int64_t ready, bint holds
) except -1:
    """A turn whose lateness is kept."""
    cdef int64_t now = monotonic_ns(), before = sampler.answers
    cdef int64_t late_ns = sampler.late_ns(fd, index, ready, now)
    cdef int end = turn(terminal, limit_ns, sampler, holds)
    if sampler.answers > before:  # else a part of an answer has arrived
        sampler.samples.add(now, late_ns, sampler.every)
        if sampler.answers > before + 1:  # the further ones were read at once
            sampler.samples.add(now, 0, (sampler.answers - before - 1) * sampler.every)
    return end


cdef int start(TerminalState terminal, int64_t intended_ns, int64_t now) except -1:
    """Draw a transaction and send its first statement; the answer is not read, as others may be due."""
    terminal.kind = terminal.next() if terminal.pauses is None else <KindState?>terminal.pauses.next_kind()
    terminal.intended_ns, terminal.started_ns, terminal.busy = intended_ns, now, True
    terminal.kind.draw(terminal)
    begin(terminal, None)
    return 0


cdef int follow(TerminalState terminal, Schedule schedule, int64_t t0_ns) except -1:
    """The step of a `timed` terminal after a transaction has ended, as `PolledLoop._continue`."""
    cdef int64_t now = terminal.ended_ns, until_ns
    if terminal.fires is not None:
        until_ns = terminal.pending_ns = t0_ns + <int64_t>terminal.fires()
        if until_ns <= now:
            return start(terminal, until_ns, now)
    else:
        until_ns = now + <int64_t>terminal.pauses.next_ns(terminal.kind)
    terminal.busy, terminal.until_ns = False, until_ns
    return schedule.add(until_ns, terminal.number, terminal)


cdef int fire(object loop, Schedule schedule) except -1:
    """The timer has fired, as `PolledLoop._fire`. Terminals that are not `timed`, or have no connection, are the loop's."""
    cdef int64_t now = monotonic_ns(), at_ns = 0, pending_ns
    cdef TerminalState terminal
    schedule.armed_ns = -1
    if now >= <int64_t>loop.limit_ns and not loop.tick(now):
        return 0
    while True:
        now = monotonic_ns()
        taken = schedule.take(now, &at_ns)
        if taken is None:
            return 0
        terminal = <TerminalState?>taken
        if at_ns != terminal.until_ns:
            continue
        if not schedule.start_skew_ns:
            schedule.start_skew_ns = max(now - at_ns, 1)
        if not terminal.timed or terminal.held is None:
            loop.resume(terminal, now)
            if not loop.limit_ns:
                return 0
            continue
        try:
            pending_ns = terminal.pending_ns
            if terminal.fires is None:
                start(terminal, now, now)
            elif pending_ns <= now:
                start(terminal, pending_ns, now)
            else:  # it was in a pause after a lost connection
                terminal.until_ns = pending_ns
                schedule.add(pending_ns, terminal.number, terminal)
        except StatementFailure as failure:
            loop.failed(terminal, failure)
            if not loop.limit_ns:
                return 0


cdef inline TerminalState terminal_of(list terminals, Py_ssize_t fd):
    """None if the descriptor is not that of a terminal."""
    found = terminals[fd] if fd < len(terminals) else None
    return None if found is None else <TerminalState?>found


cdef int load_ahead(list terminals, const epoll_event* events, int ready) except -1:
    """Load what later turns of the batch need into the processor's caches: the terminals, what they refer to, and so on."""
    cdef TerminalState terminal
    if ready > 6:
        terminal = terminal_of(terminals, events[6].data.fd)
        prefetch(<void*>terminal, 4)
    if ready > 4:
        terminal = terminal_of(terminals, events[4].data.fd)
        if terminal is not None:
            prefetch(<void*>terminal.wire, 5)
            prefetch(<void*>terminal.kind, 4)
            prefetch(<void*>terminal.mix, 2)
    if ready > 2:
        terminal = terminal_of(terminals, events[2].data.fd)
        if terminal is not None:
            prefetch(terminal.kind.row, 1)
            if terminal.mix is not None:
                prefetch(terminal.mix.index, 1)
    return 0


def serve(object epoll, list terminals, object loop):
    """See `transaction_loop`."""
    cdef epoll_event events[EVENTS_MAX]
    cdef int descriptor = epoll.fileno(), ready, i, end
    cdef int64_t limit_ns = loop.limit_ns, paced_ns = limit_ns
    cdef Sampler sampler = loop.sampler
    cdef Schedule schedule = <Schedule?>loop.schedule
    cdef int timer = schedule.fd
    cdef void* interpreter = PyInterpreterState_Get()
    cdef int64_t t0_ns = loop.t0_ns
    cdef bint sampled, holds
    cdef TerminalState terminal
    cdef list held = []
    while limit_ns:
        if limit_ns != paced_ns:
            paced_ns = limit_ns
            sampler.pace()
        sampler.left -= 1
        sampled = sampler.left <= 0
        if sampled:
            sampler.calls()
        schedule.wait(limit_ns)
        if PyThreadState_Next(PyInterpreterState_ThreadHead(interpreter)) == NULL:  # no other thread wants the lock
            ready = epoll_wait(descriptor, events, EVENTS_MAX, -1)
        else:
            with nogil:
                ready = epoll_wait(descriptor, events, EVENTS_MAX, -1)
        if ready < 0:
            if errno != EINTR:
                raise OSError(errno, strerror(errno).decode())
            PyErr_CheckSignals()
            continue
        if sampler.left <= 1:
            sampler.returns(sampled)
        if sampled:
            sampler.thin(ready)
        holds = ready >= HELD_FROM
        for i in range(ready):
            if holds:
                load_ahead(terminals, events + i, ready - i)
            if events[i].data.fd == timer:
                fire(loop, schedule)
                limit_ns = loop.limit_ns
                continue
            terminal = terminal_of(terminals, events[i].data.fd)
            if terminal is None:
                loop.woken(events[i].data.fd)
                limit_ns = loop.limit_ns
                continue
            try:
                if sampled and i % sampler.every == sampler.first:
                    end = sampled_turn(terminal, limit_ns, sampler, events[i].data.fd, i, ready, holds)
                else:
                    end = turn(terminal, limit_ns, sampler, holds)
                if end == WAIT:
                    continue
                if end == HELD:
                    held.append(terminal)
                    continue
                if end == NEXT and terminal.timed:
                    follow(terminal, schedule, t0_ns)
                    continue
                if not loop.ended(terminal, end):
                    limit_ns = 0
                    break
                if end == NEXT:  # no tick
                    continue
            except StatementFailure as failure:
                failed(loop, terminal, failure)
            limit_ns = loop.limit_ns
        if held:
            limit_ns = release(held, loop, limit_ns)

