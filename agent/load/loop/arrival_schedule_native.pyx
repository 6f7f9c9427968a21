# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""`schedule.Schedule`, compiled: the heap is an array in C, and the timer is set without ctypes."""

from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.errno cimport errno
from libc.stdint cimport int64_t
from libc.stdlib cimport free, realloc
from libc.string cimport strerror
from posix.time cimport itimerspec

from proveout.agent.load.loop.timer import Timer

cdef extern from "sys/timerfd.h" nogil:
    int timerfd_settime(int fd, int flags, const itimerspec* value, itimerspec* before)
    int TFD_TIMER_ABSTIME


cdef inline bint before(Due* one, Due* other) noexcept:
    return one.at_ns < other.at_ns or (one.at_ns == other.at_ns and one.number < other.number)


cdef class Schedule:
    """See `schedule.Schedule`."""

    def __init__(self):
        self.timer = Timer()
        self.fd = self.timer.fileno()
        self.armed_ns = self.start_skew_ns = 0

    def __dealloc__(self):
        cdef Py_ssize_t i
        for i in range(self.count):
            Py_DECREF(<object>self.heap[i].terminal)
        free(self.heap)

    def fileno(self):
        """The descriptor of the timer."""
        return self.fd

    def push(self, at_ns, terminal):
        """See `schedule.Schedule.push`."""
        self.add(at_ns, terminal.number, terminal)

    def pop(self, now_ns):
        """See `schedule.Schedule.pop`."""
        cdef int64_t at_ns = 0
        terminal = self.take(now_ns, &at_ns)
        return None if terminal is None else (at_ns, terminal)

    def arm(self, limit_ns):
        """See `schedule.Schedule.arm`."""
        self.wait(limit_ns)

    def fired(self):
        """See `schedule.Schedule.fired`."""
        self.armed_ns = -1

    def close(self):
        """Close the timer."""
        self.timer.close()

    cdef int add(self, int64_t at_ns, int64_t number, object terminal) except -1:
        cdef Due* larger
        cdef Due due
        cdef Py_ssize_t at = self.count, parent
        if self.count == self.size:
            larger = <Due*>realloc(self.heap, (self.size * 2 + 64) * sizeof(Due))
            if larger == NULL:
                raise MemoryError
            self.heap, self.size = larger, self.size * 2 + 64
        due.at_ns, due.number, due.terminal = at_ns, number, <void*>terminal
        Py_INCREF(terminal)
        self.count += 1
        while at:
            parent = (at - 1) >> 1
            if not before(&due, &self.heap[parent]):
                break
            self.heap[at] = self.heap[parent]
            at = parent
        self.heap[at] = due
        return 0

    cdef object take(self, int64_t now_ns, int64_t* at_ns):
        """The terminal of the first instant, which is put into `at_ns`; None if it is after `now_ns`."""
        cdef Due last
        cdef Py_ssize_t at = 0, child = 1
        if not self.count or self.heap[0].at_ns > now_ns:
            return None
        at_ns[0] = self.heap[0].at_ns
        terminal = <object>self.heap[0].terminal
        Py_DECREF(terminal)
        self.count -= 1
        last = self.heap[self.count]
        while child < self.count:
            if child + 1 < self.count and before(&self.heap[child + 1], &self.heap[child]):
                child += 1
            if not before(&self.heap[child], &last):
                break
            self.heap[at] = self.heap[child]
            at, child = child, 2 * child + 1
        self.heap[at] = last
        return terminal

    cdef int wait(self, int64_t limit_ns) except -1:
        cdef int64_t first = limit_ns
        cdef itimerspec at
        if self.count and self.heap[0].at_ns < first:
            first = self.heap[0].at_ns
        if first == self.armed_ns:
            return 0
        at.it_interval.tv_sec = at.it_interval.tv_nsec = 0
        at.it_value.tv_sec, at.it_value.tv_nsec = first // 1_000_000_000, first % 1_000_000_000
        if timerfd_settime(self.fd, TFD_TIMER_ABSTIME, &at, NULL):
            raise OSError(errno, strerror(errno).decode())
        self.armed_ns = first
        return 0
