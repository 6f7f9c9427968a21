# cython: language_level=3
"""Functions of `wire_native` that other compiled modules call, and those that an engine's protocol overrides."""

from libc.stdint cimport int64_t, uint8_t, uint32_t


cdef void none_is_held() noexcept


cdef class Prepared:
    cdef readonly object statement


cdef class Layout:
    """Places of a statement's drawn values in a row of a structured array."""
    cdef int count
    cdef uint32_t* offsets
    cdef uint32_t* widths  # characters of a text; 0 = an integer of 8 bytes

    cdef object value(self, int field, const uint8_t* row)
    cdef tuple values(self, const uint8_t* row)


cdef class Wire:
    cdef int fd
    cdef bint encrypted
    cdef bint shares  # the buffers of the loop, see `share`
    cdef bint held  # the next message is not sent before `release`
    cdef uint8_t* data
    cdef size_t size, filled, at, end
    cdef uint8_t* kept
    cdef size_t kept_size
    cdef uint8_t* out
    cdef size_t out_size, place, length
    cdef public long count
    cdef readonly Prepared sent
    cdef void* tls  # OpenSSL's SSL; NULL for a socket without encryption
    cdef bint ahead
    cdef object room

    cdef bint put(self, Prepared prepared, tuple arguments) except -1
    cdef bint put_row(self, Prepared prepared, Layout layout, const uint8_t* row, list kept, tuple places) except -1
    cdef bint walk(self) except -1
    cdef bint first(self, Py_ssize_t wanted, list kept) except -1
    cdef object broken(self, str text, bint sending)
    cdef int encrypt(self, size_t tls) except -1
    cdef object unsent(self, bytes rest)
    cdef bint get(self) except -1
    cdef bint fill(self) except -1
    cdef bint fill_encrypted(self) except -1
    cdef bint push(self, Prepared prepared, size_t length) except -1
    cdef bint release(self) except -1
    cdef bint transmit(self) except -1
    cdef void share(self) noexcept
    cdef int keep(self) except -1
    cdef bint push_encrypted(self, size_t length) except -1
    cdef int reserve(self, size_t need) except -1
    cdef int grow(self) except -1
