# cython: language_level=3
"""Fields and functions of `protocol_native`, for its own module."""

from libc.stdint cimport int64_t, uint8_t, uint32_t

from proveout.agent.engines cimport wire_native

cdef enum:
    PARAMETERS_MAX = 400  # the binds of a workload and of a transaction (`dsl.workloads.sql`)


cdef class Prepared(wire_native.Prepared):
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


cdef class Wire(wire_native.Wire):
    cdef object fail, lost, failure
    cdef size_t base
    cdef long tag, done

    cdef size_t group(self, Pipeline pipeline, tuple requests) except 0
    cdef object failed(self, bytes body)
    cdef bint ready(self, size_t end) except -1
    cdef size_t message(self, Prepared prepared, tuple arguments) except 0
    cdef size_t begin(self, Prepared prepared) except 0
    cdef size_t put_value(self, Prepared prepared, int i, size_t at, object value) except 0
    cdef size_t put_number(self, Prepared prepared, int i, size_t at, int64_t value) except 0
    cdef size_t put_text(self, Prepared prepared, size_t at, const char* text, size_t length) except 0
    cdef size_t put_characters(self, Prepared prepared, size_t at, const uint8_t* characters, uint32_t width) except 0
    cdef size_t finish(self, Prepared prepared, size_t at) noexcept
