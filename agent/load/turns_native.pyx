# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, nonecheck=True
"""`turns_python` compiled: times are C integers, records go into C arrays, a body's return raises no exception."""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc, realloc
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


cdef class Script:
    """See `turns_python.Script`."""

    cdef object begin, commit, rollback
    cdef list prepared, places
    cdef Py_ssize_t length
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

    cdef bint met(self, Py_ssize_t step, TerminalState terminal, object session) except -1:
        """Whether the answered step had the rows it needs; keeps of them what later ones need."""
        cdef int64_t count = session.count
        cdef int64_t* bounds = self.bounds + 3 * step
        if not bounds[0] <= count <= bounds[1]:
            return False
        if bounds[2]:
            rows = session.rows()
            if not rows:
                return False
            terminal.kept = terminal.kept + rows[0][:bounds[2]]
        return True

    cdef tuple arguments(self, Py_ssize_t step, TerminalState terminal):
        cdef tuple drawn = <tuple?>terminal.inputs[step]
        cdef object places = self.places[step]
        cdef tuple kept = terminal.kept
        cdef Py_ssize_t i, place, held = len(kept)
        if places is None:
            return drawn
        return tuple([kept[place] if place < held else drawn[place - held] for place in places])


cdef class KindState:
    """What the hot loop reads of a `Kind`."""

    cdef public object prepared, inputs, start
    cdef public Script script
    cdef public bint bare
    cdef readonly object times
    cdef Times ok, failed

    def __init__(self, times):
        self.times = times
        self.ok, self.failed = times
        self.prepared = self.inputs = self.start = self.script = None
        self.bare = False


cdef class TerminalState:
    """What the hot loop reads and writes of a `Terminal`."""

    cdef public object session, body, draw, inputs
    cdef public dict prepared
    cdef public tuple kept
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
        self.kept, self.at = (), 0

    cpdef object restart(self, Script script):
        """Before the first statement of a script, which is returned: BEGIN."""
        self.body = None
        self.at = 0
        self.kept = ()
        return script.begin


cdef inline int64_t monotonic_ns() noexcept:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <int64_t>now.tv_sec * 1_000_000_000 + now.tv_nsec


def turns(TerminalState terminal, int64_t limit_ns):
    """See `turns`."""
    cdef int left = SPECULATION, outcome
    cdef int64_t now
    cdef KindState kind
    cdef Script script
    cdef Py_ssize_t at
    cdef PyObject* yielded
    cdef bint answered
    session = terminal.session
    exchange = session.exchange
    answered = session.receive()
    while answered:
        if terminal.body is None:
            script = terminal.kind.script
            if script is None:
                outcome = 0 if session.count else 1
            else:
                at = terminal.at
                if at <= script.length:
                    if at and not script.met(at - 1, terminal, session):
                        terminal.outcome = 1
                        terminal.at = script.length + 1
                        answered = exchange(script.rollback, ())
                        continue
                    terminal.at = at + 1
                    if at == script.length:
                        terminal.outcome = 0
                        answered = exchange(script.commit, ())
                    else:
                        answered = exchange(script.prepared[at], script.arguments(at, terminal))
                    continue
                outcome = terminal.outcome
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
        elif kind.script is not None:
            answered = exchange(terminal.restart(kind.script), ())
        else:
            terminal.body = kind.start(inputs)
            request = next(terminal.body)
            answered = exchange(terminal.prepared[request[0].name], request[1])
    return WAIT
