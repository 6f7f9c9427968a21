# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, nonecheck=True
"""`turns_python` compiled: times are C integers, records go into C arrays, a body's return raises no exception."""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF
from libc.stdint cimport int64_t
from libc.stdlib cimport free, realloc
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

from proveout.agent.load import turn_ends

cdef extern from "Python.h":
    ctypedef enum PySendResult:
        PYGEN_RETURN, PYGEN_ERROR, PYGEN_NEXT
    PySendResult PyIter_Send(object body, object value, PyObject** result) except PYGEN_ERROR

cdef int WAIT = turn_ends.WAIT, NEXT = turn_ends.NEXT, SETTLE = turn_ends.SETTLE, TICK = turn_ends.TICK
cdef int SPECULATION = turn_ends.SPECULATION


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
        """What was recorded since the last time, as native int64."""
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


cdef class KindState:
    """What the hot loop reads of a `Kind`."""

    cdef public object prepared, inputs, start
    cdef public bint bare
    cdef readonly object times
    cdef Times ok, failed

    def __init__(self, times):
        self.times = times
        self.ok, self.failed = times
        self.prepared = self.inputs = self.start = None
        self.bare = False


cdef class TerminalState:
    """What the hot loop reads and writes of a `Terminal`."""

    cdef public object session, body, draw, inputs
    cdef public dict prepared
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


cdef inline int64_t monotonic_ns() noexcept:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <int64_t>now.tv_sec * 1_000_000_000 + now.tv_nsec


def turns(TerminalState terminal, int64_t limit_ns):
    """See `turns`."""
    cdef int left = SPECULATION, outcome
    cdef int64_t now
    cdef KindState kind
    cdef PyObject* yielded
    cdef bint answered
    session = terminal.session
    exchange = session.exchange
    answered = session.receive()
    while answered:
        if terminal.body is None:
            outcome = 0 if session.count else 1
        elif PyIter_Send(terminal.body, session, &yielded) == PYGEN_NEXT:
            request = <object>yielded
            Py_DECREF(request)
            answered = exchange(terminal.prepared[request[0].name], request[1])
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
        inputs = terminal.inputs = kind.inputs()
        if kind.bare:
            terminal.body = None
            answered = exchange(kind.prepared, inputs[1])
        else:
            terminal.body = kind.start(inputs)
            request = next(terminal.body)
            answered = exchange(terminal.prepared[request[0].name], request[1])
    return WAIT
