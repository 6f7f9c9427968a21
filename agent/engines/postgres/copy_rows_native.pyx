# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Rows of binary COPY, compiled: columns of numbers and texts in, row after row out, into one buffer that is used again.

Flow: `Rows(fields)` keeps what all rows of a table have in common -> `encode(columns, masks)` goes through the rows once
and writes number of fields, lengths and values, big-endian -> a view of the buffer, valid until the next call. A column
is a contiguous buffer: of int64 for numbers, of `width` bytes a value for texts. Where this module was not
built, rows travel as CSV (`populate.Chunks`).
"""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING

cdef enum:
    COLUMNS_MAX = 64
    INTEGER = 0
    TEXT = 1  # every value has `width` bytes
    TRIMMED = 2  # a value ends before the zeros at its end
    NUMERIC = 3  # `width` digits of base 10,000, the last after the point
    NUMERIC_HEAD = 8  # number of digits, weight, sign, scale
    NUMERIC_NEGATIVE = 0x4000
    NULL_LENGTH = 0xFFFFFFFF


cdef struct Field:
    int code
    int width
    int scale
    uint64_t unit  # 10^scale
    uint64_t fraction  # 10^(4 - scale)


cdef inline void put16(uint8_t* at, uint16_t value) noexcept:
    at[0] = value >> 8
    at[1] = value & 0xFF


cdef inline void put32(uint8_t* at, uint32_t value) noexcept:
    at[0] = value >> 24
    at[1] = (value >> 16) & 0xFF
    at[2] = (value >> 8) & 0xFF
    at[3] = value & 0xFF


cdef inline uint8_t* number(uint8_t* at, uint64_t value, int width) noexcept:
    """An integer of 2, 4 or 8 bytes behind its length."""
    put32(at, width)
    at += 4
    if width == 2:
        put16(at, <uint16_t>value)
    elif width == 4:
        put32(at, <uint32_t>value)
    else:
        put32(at, <uint32_t>(value >> 32))
        put32(at + 4, <uint32_t>value)
    return at + width


cdef inline uint8_t* numeric(uint8_t* at, int64_t value, const Field* field) noexcept:
    cdef uint64_t rest = <uint64_t>(-value if value < 0 else value)
    cdef int digit
    put32(at, NUMERIC_HEAD + 2 * field.width)
    put16(at + 4, field.width)
    put16(at + 6, field.width - 2)
    put16(at + 8, NUMERIC_NEGATIVE if value < 0 else 0)
    put16(at + 10, field.scale)
    at += 4 + NUMERIC_HEAD
    put16(at + 2 * (field.width - 1), <uint16_t>(rest % field.unit * field.fraction))
    rest //= field.unit
    for digit in range(field.width - 2, -1, -1):
        put16(at + 2 * digit, <uint16_t>(rest % 10_000))
        rest //= 10_000
    return at + 2 * field.width


cdef class Rows:
    """The encoder of a table. `fields` has (code, width, scale) of each column; ValueError where there are too many."""

    cdef Field fields[COLUMNS_MAX]
    cdef Py_buffer views[COLUMNS_MAX]
    cdef Py_buffer masks[COLUMNS_MAX]
    cdef int count
    cdef Py_ssize_t row_max
    cdef bytearray out

    def __init__(self, tuple fields):
        if len(fields) > COLUMNS_MAX:
            raise ValueError(f"more than {COLUMNS_MAX} columns")
        self.count, self.row_max, self.out = len(fields), 2, bytearray()
        for i, (code, width, scale) in enumerate(fields):
            self.fields[i] = Field(code, width, scale, 10**scale, 10 ** (4 - scale))
            self.row_max += 4 + (NUMERIC_HEAD + 2 * width if code == NUMERIC else width)

    def encode(self, list columns, list masks, Py_ssize_t rows):
        """The rows as bytes between header and trailer; `masks` has an array of bool, or None, for each column."""
        cdef int opened = 0, masked = 0
        cdef Py_ssize_t size
        if len(columns) != self.count or len(masks) != self.count:
            raise ValueError(f"{len(columns)} columns for {self.count} fields")
        if len(self.out) < rows * self.row_max:
            self.out = bytearray(rows * self.row_max)
        for i in range(COLUMNS_MAX):
            self.masks[i].buf = NULL
        try:
            for column in columns:
                PyObject_GetBuffer(column, &self.views[opened], PyBUF_SIMPLE)
                opened += 1
                size = self.fields[opened - 1].width if self.fields[opened - 1].code in (TEXT, TRIMMED) else 8
                if self.views[opened - 1].len != rows * size:
                    raise ValueError(f"column {opened} has {self.views[opened - 1].len} bytes, not {rows * size}")
            for mask in masks:
                if mask is not None:
                    PyObject_GetBuffer(mask, &self.masks[masked], PyBUF_SIMPLE)
                    if self.masks[masked].len != rows:
                        masked += 1
                        raise ValueError(f"the mask of column {masked} does not have {rows} rows")
                masked += 1
            size = self.written(rows)
        finally:
            for i in range(opened):
                PyBuffer_Release(&self.views[i])
            for i in range(masked):
                if self.masks[i].buf != NULL:
                    PyBuffer_Release(&self.masks[i])
        return memoryview(self.out)[:size]

    cdef Py_ssize_t written(self, Py_ssize_t rows) noexcept:
        cdef uint8_t* start = <uint8_t*>PyByteArray_AS_STRING(self.out)
        cdef uint8_t* at = start
        cdef const uint8_t* text
        cdef Field* field
        cdef Py_ssize_t row
        cdef int i, length
        for row in range(rows):
            put16(at, self.count)
            at += 2
            for i in range(self.count):
                field = &self.fields[i]
                if self.masks[i].buf != NULL and (<const uint8_t*>self.masks[i].buf)[row]:
                    put32(at, NULL_LENGTH)
                    at += 4
                elif field.code == INTEGER:
                    at = number(at, (<const uint64_t*>self.views[i].buf)[row], field.width)
                elif field.code == NUMERIC:
                    at = numeric(at, (<const int64_t*>self.views[i].buf)[row], field)
                else:
                    length = field.width
                    text = <const uint8_t*>self.views[i].buf + row * field.width
                    if field.code == TRIMMED:
                        while length and not text[length - 1]:
                            length -= 1
                    put32(at, length)
                    memcpy(at + 4, text, length)
                    at += 4 + length
        return at - start
