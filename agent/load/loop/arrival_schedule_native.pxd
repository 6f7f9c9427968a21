# cython: language_level=3
"""Functions of the schedule that `transaction_loop_native` calls."""

from libc.stdint cimport int64_t


cdef struct Due:
    int64_t at_ns, number
    void* terminal  # an owned reference


cdef class Schedule:
    cdef Due* heap
    cdef Py_ssize_t count, size
    cdef object timer
    cdef int fd
    cdef int64_t armed_ns
    cdef public int64_t start_skew_ns

    cdef int add(self, int64_t at_ns, int64_t number, object terminal) except -1
    cdef object take(self, int64_t now_ns, int64_t* at_ns)
    cdef int wait(self, int64_t limit_ns) except -1
