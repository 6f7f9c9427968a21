# cython: language_level=3
"""Functions of `postgres_native` that other compiled modules call without going through Python."""

from libc.stdint cimport int64_t, uint8_t, uint32_t

cdef enum:
    PARAMETERS_MAX = 160  # an INSERT of fifteen order lines has 135


cdef class Prepared:
    cdef readonly object statement
    cdef readonly tuple decoders
    cdef bytes head, tail
    cdef int count
    cdef uint8_t sizes[PARAMETERS_MAX]  # bytes of an integer; 0 = text
    cdef bint unsigned[PARAMETERS_MAX]


cdef class Pipeline(Prepared):
    """The prepared statements of a session by name; `members` are those of the group that was sent last."""
    cdef dict prepared
    cdef list members


cdef class Answer:
    """The result of one statement of a group."""
    cdef readonly long count
    cdef bytes data
    cdef tuple decoders


cdef class Layout:
    """Places of a statement's drawn values in a row of a structured array."""
    cdef int count
    cdef uint32_t offsets[PARAMETERS_MAX]
    cdef uint32_t widths[PARAMETERS_MAX]  # characters of a text; 0 = an integer of 8 bytes

    cdef object value(self, int field, const uint8_t* row)
    cdef tuple values(self, const uint8_t* row)


cdef class Wire:
    cdef public long count
    cdef int fd
    cdef object fail, lost, room, failure
    cdef readonly Prepared sent
    cdef uint8_t* out
    cdef size_t out_size, base
    cdef uint8_t* data
    cdef size_t size, filled, at, end
    cdef long tag, done

    cdef bint put(self, Prepared prepared, tuple arguments) except -1
    cdef bint put_row(self, Prepared prepared, Layout layout, const uint8_t* row, list kept, tuple places) except -1
    cdef bint push(self, Prepared prepared, size_t length) except -1
    cdef bint get(self) except -1
    cdef bint fill(self) except -1
    cdef size_t group(self, Pipeline pipeline, tuple requests) except 0
    cdef object failed(self, bytes body)
    cdef bint first(self, Py_ssize_t wanted, list kept) except -1
    cdef int grow(self) except -1
    cdef bint walk(self) except -1
    cdef bint ready(self, size_t end) except -1
    cdef size_t message(self, Prepared prepared, tuple arguments) except 0
    cdef size_t begin(self, Prepared prepared) except 0
    cdef size_t put_value(self, Prepared prepared, int i, size_t at, object value) except 0
    cdef size_t put_number(self, Prepared prepared, int i, size_t at, int64_t value) except 0
    cdef size_t put_text(self, Prepared prepared, size_t at, const char* text, size_t length) except 0
    cdef size_t put_characters(self, Prepared prepared, size_t at, const uint8_t* characters, uint32_t width) except 0
    cdef size_t finish(self, Prepared prepared, size_t at) noexcept
    cdef int reserve(self, size_t need) except -1
