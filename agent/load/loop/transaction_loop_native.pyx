# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, nonecheck=True
"""`transaction_loop_python`, compiled: times are C integers, records go into C arrays, the return of a body raises no exception."""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.object cimport PyObject
from cpython.exc cimport PyErr_CheckSignals
from cpython.ref cimport Py_DECREF, Py_INCREF
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from libc.errno cimport EINTR, errno
from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport strerror
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

from proveout.agent.engines.postgres.wire.protocol_native cimport Prepared, Wire

from types import MethodWrapperType

from proveout.agent.engines.driver_contract import StatementFailure
from proveout.agent.load.loop import transaction_loop_python

cdef extern from "Python.h":
    ctypedef enum PySendResult:
        PYGEN_RETURN, PYGEN_ERROR, PYGEN_NEXT
    PySendResult PyIter_Send(object body, object value, PyObject** result) except PYGEN_ERROR

cdef extern from "sys/epoll.h" nogil:
    ctypedef union epoll_data:
        int fd
    cdef struct epoll_event:
        uint32_t events
        epoll_data data
    int epoll_wait(int epoll, epoll_event* events, int events_max, int timeout_ms)

cdef enum:
    EVENTS_MAX = 64

cdef int WAIT = transaction_loop_python.WAIT, NEXT = transaction_loop_python.NEXT, SETTLE = transaction_loop_python.SETTLE, TICK = transaction_loop_python.TICK
cdef int SPECULATION = transaction_loop_python.SPECULATION


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

    cdef bint met(self, Py_ssize_t step, TerminalState terminal, object session, Wire wire) except -1:
        """Whether the answered step had the required number of rows. Keeps the values that later steps need."""
        cdef int64_t count = session.count if wire is None else wire.count
        cdef int64_t* bounds = self.bounds + 3 * step
        if not bounds[0] <= count <= bounds[1]:
            return False
        if bounds[2]:
            if wire is not None:
                return wire.first(bounds[2], terminal.kept)
            rows = session.rows()
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


cdef class KindState:
    """The fields of a `Kind` that the hot loop reads."""

    cdef public object prepared, start
    cdef object source, drawn
    cdef public Script script
    cdef public bint bare
    cdef readonly object times
    cdef Times ok, failed

    def __init__(self, times):
        self.times = times
        self.ok, self.failed = times
        self.prepared = self.source = self.drawn = self.start = self.script = None
        self.bare = False

    @property
    def inputs(self):
        """The source of a transaction's inputs. If it is the `__next__` of an iterator, the iterator is advanced without a Python call."""
        return self.source

    @inputs.setter
    def inputs(self, source):
        self.source = source
        bound = isinstance(source, MethodWrapperType) and source.__name__ == "__next__"
        self.drawn = source.__self__ if bound else None

    cdef object draw(self):
        return self.source() if self.drawn is None else next(self.drawn)


cdef class TerminalState:
    """The fields of a `Terminal` that the hot loop reads and writes."""

    cdef public object session, body, draw, inputs
    cdef public dict prepared
    cdef public list kept
    cdef public Py_ssize_t at
    cdef public KindState kind
    cdef public int64_t intended_ns, started_ns, ended_ns
    cdef public int outcome
    cdef public bint restless

    def __init__(self):
        self.session = self.body = self.kind = self.inputs = None
        self.prepared = {}
        self.draw = iter(())
        self.intended_ns = self.started_ns = self.ended_ns = self.outcome = 0
        self.restless = False
        self.kept, self.at = [], 0

    cpdef object restart(self, Script script):
        """Prepare for the first statement of a script; returns that statement, BEGIN."""
        self.body = None
        self.at = 0
        if self.kept:
            self.kept = []
        return script.begin


cdef inline int64_t monotonic_ns() noexcept:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <int64_t>now.tv_sec * 1_000_000_000 + now.tv_nsec


cdef inline bint exchange(object session, Wire wire, object prepared, object arguments) except -1:
    """Send, and read at once; without Python calls if the session is compiled."""
    if wire is None:
        return session.exchange(prepared, arguments)
    wire.put(<Prepared?>prepared, <tuple?>arguments)
    return wire.get()


def turns(TerminalState terminal, int64_t limit_ns):
    """See `transaction_loop`."""
    return turn(terminal, limit_ns)


cdef int turn(TerminalState terminal, int64_t limit_ns) except -1:
    cdef int left = SPECULATION, outcome
    cdef int64_t now
    cdef KindState kind
    cdef Script script
    cdef Py_ssize_t at
    cdef PyObject* yielded
    cdef object session = terminal.session
    cdef Wire wire = <Wire>session if isinstance(session, Wire) else None
    cdef bint answered = session.receive() if wire is None else wire.get()
    while answered:
        if terminal.body is None:
            script = terminal.kind.script
            if script is None:
                outcome = 0 if (session.count if wire is None else wire.count) else 1
            else:
                at = terminal.at
                if at <= script.length:
                    if at and not script.met(at - 1, terminal, session, wire):
                        terminal.outcome = 1
                        terminal.at = script.length + 1
                        answered = exchange(session, wire, script.rollback, ())
                        continue
                    terminal.at = at + 1
                    if at == script.length:
                        terminal.outcome = 0
                        answered = exchange(session, wire, script.commit, ())
                    else:
                        answered = exchange(session, wire, script.prepared[at], script.arguments(at, terminal))
                    continue
                outcome = terminal.outcome
        elif PyIter_Send(terminal.body, session, &yielded) == PYGEN_NEXT:
            request = <object>yielded
            Py_DECREF(request)
            answered = exchange(session, wire, terminal.prepared[request[0].name], tuple(request[1]))
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
        kind = terminal.kind = <KindState?>next(terminal.draw)
        terminal.intended_ns = terminal.started_ns = now
        inputs = terminal.inputs = kind.draw()
        if kind.bare:
            terminal.body = None
            answered = exchange(session, wire, kind.prepared, inputs[1])
        elif kind.script is not None:
            answered = exchange(session, wire, terminal.restart(kind.script), ())
        else:
            terminal.body = kind.start(inputs)
            request = next(terminal.body)
            answered = exchange(session, wire, terminal.prepared[request[0].name], tuple(request[1]))
    return WAIT


def serve(object epoll, dict terminals, object loop):
    """See `transaction_loop`."""
    cdef epoll_event events[EVENTS_MAX]
    cdef int descriptor = epoll.fileno(), ready, i, end
    cdef int64_t limit_ns = loop.limit_ns
    while limit_ns:
        with nogil:
            ready = epoll_wait(descriptor, events, EVENTS_MAX, -1)
        if ready < 0:
            if errno != EINTR:
                raise OSError(errno, strerror(errno).decode())
            PyErr_CheckSignals()
            continue
        for i in range(ready):
            terminal = terminals.get(events[i].data.fd)
            if terminal is None:
                loop.woken(events[i].data.fd)
                limit_ns = loop.limit_ns
                continue
            try:
                end = turn(<TerminalState?>terminal, limit_ns)
                if end == WAIT:
                    continue
                if not loop.ended(terminal, end):
                    return
            except StatementFailure as failure:
                loop.failed(terminal, failure)
            limit_ns = loop.limit_ns
