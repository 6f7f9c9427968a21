# cython: language_level=3
"""Functions of `postgres_native` that other compiled modules call without going through Python."""

from libc.stdint cimport uint8_t, uint32_t

cdef enum:
    PARAMETERS_MAX = 160  # an INSERT of fifteen order lines has 135


cdef class Prepared:
    cdef readonly object statement
    cdef readonly tuple decoders
    cdef bytes head, tail
    cdef int count
    cdef uint8_t sizes[PARAMETERS_MAX]  # bytes of an integer; 0 = text
    cdef bint unsigned[PARAMETERS_MAX]


cdef class Wire:
    cdef public long count
    cdef int fd
    cdef object fail, lost, room, failure
    cdef readonly Prepared sent
    cdef uint8_t* out
    cdef size_t out_size
    cdef uint8_t* data
    cdef size_t size, filled, at, end
    cdef long tag

    cdef bint put(self, Prepared prepared, tuple arguments) except -1
    cdef bint get(self) except -1
    cdef bint first(self, Py_ssize_t wanted, list kept) except -1
    cdef int grow(self) except -1
    cdef bint walk(self) except -1
    cdef bint ready(self, size_t end) except -1
    cdef tuple row(self, size_t at, tuple decoders)
    cdef object value(self, size_t at, uint32_t size, object decode)
    cdef size_t message(self, Prepared prepared, tuple arguments) except 0
    cdef int room_for(self, size_t need) except -1
