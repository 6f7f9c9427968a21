# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, nonecheck=True, cdivision=True
"""The hot path of PostgreSQL's sessions: Bind, Execute and Sync out, the answer in, without a Python object per message.

Flow: `prepared(…)` keeps what every message of a statement has in common -> `exchange` writes the arguments between that
into one buffer, sends, and reads into another -> the answer is walked in place, and its rows, where a transaction wants
them, decoded out of it. Only what is rare leaves this module: errors (`fail`). The socket is non-blocking, so the GIL is kept.

Where this module was not built, statements go through libpq (`driver.PostgresSession`); the same tests of drivers run on both.
"""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_AsUTF8AndSize

from proveout.agent.engines cimport wire_native
from proveout.agent.engines.wire_native cimport Layout

from proveout.agent.engines.postgres.protocol import FOREIGN, lost

cdef enum:
    COMMAND_COMPLETE = 0x43  # C
    DATA_ROW = 0x44  # D
    ERROR = 0x45  # E
    READY = 0x5A  # Z
    MESSAGE_MAX = 1 << 30  # the server's own limit
    SYNC_BYTES = 5


cdef inline void put32(uint8_t* at, uint32_t value) noexcept:
    at[0] = value >> 24
    at[1] = (value >> 16) & 0xFF
    at[2] = (value >> 8) & 0xFF
    at[3] = value & 0xFF


cdef inline uint32_t get32(const uint8_t* at) noexcept:
    return (<uint32_t>at[0] << 24) | (<uint32_t>at[1] << 16) | (<uint32_t>at[2] << 8) | at[3]


cdef class Prepared(wire_native.Prepared):
    """A statement that libpq has prepared. `parameters` are struct's "h", "i", "I" or "q", or None for text.

    `decoders`: of each column a function from its bytes to the value, or None for a binary integer.
    """

    def __init__(self, object statement, bytes head, tuple parameters, bytes tail, tuple decoders):
        if len(parameters) > PARAMETERS_MAX:
            raise ValueError(f"more than {PARAMETERS_MAX} parameters")
        self.statement, self.decoders, self.head, self.tail = statement, decoders, head, tail
        self.count = len(parameters)
        for i, kind in enumerate(parameters):
            self.sizes[i] = {"h": 2, "i": 4, "I": 4, "q": 8, None: 0}[kind]
            self.unsigned[i] = kind == "I"


cdef class Pipeline(Prepared):
    """The prepared statements of a session by name; it takes the place of one of them, with requests for arguments. `members` are
    those of the group that was sent last."""

    def __init__(self, dict prepared):
        self.prepared, self.members, self.decoders = prepared, [], ()


cdef class Answer:
    """The result of one statement of a group, decoded when its rows are asked for."""

    def rows(self):
        """The rows."""
        return rows_of(<const uint8_t*>PyBytes_AS_STRING(self.data), PyBytes_GET_SIZE(self.data), self.decoders)


cdef class Wire(wire_native.Wire):
    """The socket of an idle libpq connection: statements out, answers in. The descriptor stays its owner's.

    `fail(body, statement, number, count)` makes the exception of an ErrorResponse, of a statement in a group or (0, 0) alone;
    `lost(text, reported)` that of a connection that has ended, where `reported` (or None) is the last error of the server;
    `room(fd, rest, take_in)` sends what the kernel's buffer did not take, and lets `take_in` read meanwhile.
    `tls` is the address of the connection's SSL, 0 without encryption; libpq may use the connection after `pause`.
    """

    def __init__(self, int fd, object fail, object lost, object room, size_t tls=0):
        self.fd, self.fail, self.lost, self.room = fd, fail, lost, room
        self.encrypt(tls)
        self.failure = None

    cdef object broken(self, str text, bint sending):
        return self.lost(text, None if sending else self.failure)

    cdef object unsent(self, bytes rest):
        return self.room(self.fd, rest, self.take_in)

    cdef bint put(self, wire_native.Prepared statement, tuple arguments) except -1:
        if type(statement) is Pipeline:
            return self.push(statement, self.group(<Pipeline>statement, arguments))
        return self.push(statement, self.message(<Prepared?>statement, arguments))

    def pipeline(self, dict prepared):
        """See `Pipelines`."""
        return Pipeline(prepared)

    def results(self):
        """See `Pipelines`."""
        cdef size_t at = 0, began = 0, end
        cdef bint has_rows = False
        cdef list found = []
        cdef Pipeline group
        cdef Answer answer
        if type(self.sent) is not Pipeline:
            return found
        group = <Pipeline>self.sent
        while at < self.end:
            end = at + 1 + get32(self.data + at + 1)
            if self.data[at] == DATA_ROW:
                has_rows = True
            elif self.data[at] == COMMAND_COMPLETE:
                answer = Answer.__new__(Answer)
                answer.count = counted(self.data + began, at - began)
                answer.data = PyBytes_FromStringAndSize(<char*>self.data + began, at - began) if has_rows else b""
                answer.decoders = (<Prepared?>group.members[len(found)]).decoders
                found.append(answer)
                began, has_rows = end, False
            at = end
        return found

    cdef size_t group(self, Pipeline pipeline, tuple requests) except 0:
        """Write the messages of all requests, with one Sync at their end, to `out`; how long they are."""
        cdef size_t end = 0
        cdef Prepared prepared
        cdef list members = []
        if not requests:
            raise ValueError("a group without requests")
        try:
            for statement, arguments in requests:
                prepared = <Prepared?>pipeline.prepared[statement.name]
                members.append(prepared)
                self.base = end
                end = self.message(prepared, arguments if type(arguments) is tuple else tuple(arguments)) - SYNC_BYTES
        finally:
            self.base = 0
        pipeline.members = members
        return end + SYNC_BYTES

    cdef bint put_row(
        self, wire_native.Prepared statement, Layout layout, const uint8_t* row, list kept, tuple places
    ) except -1:
        cdef Prepared prepared = <Prepared?>statement
        cdef size_t at = self.begin(prepared)
        cdef Py_ssize_t held = 0 if places is None else len(kept), place
        cdef int i
        cdef int64_t number
        if (layout.count if places is None else len(places)) != prepared.count:
            raise ValueError(f"{layout.count} drawn values for {prepared.count} parameters")
        for i in range(prepared.count):
            place = i if places is None else <Py_ssize_t?>places[i]
            if place < held:
                at = self.put_value(prepared, i, at, kept[place])
                continue
            place -= held
            if layout.widths[place] and not prepared.sizes[i]:
                at = self.put_characters(prepared, at, row + layout.offsets[place], layout.widths[place])
            elif layout.widths[place] or not prepared.sizes[i]:
                at = self.put_value(prepared, i, at, layout.value(place, row))
            else:
                memcpy(&number, row + layout.offsets[place], sizeof(number))
                at = self.put_number(prepared, i, at, number)
        return self.push(prepared, self.finish(prepared, at))

    cdef bint first(self, Py_ssize_t wanted, list kept) except -1:
        cdef size_t at = 0
        cdef tuple decoders = (<Prepared>self.sent).decoders
        while at < self.end and self.data[at] != DATA_ROW:
            at += 1 + get32(self.data + at + 1)
        if at >= self.end or len(decoders) < wanted:
            return False
        read_row(self.data + at, decoders, wanted, kept)
        return True

    def rows(self):
        """The rows of the last answer, decoded."""
        return [] if self.sent is None else rows_of(self.data, self.end, (<Prepared>self.sent).decoders)

    cdef bint walk(self) except -1:
        """Message by message, from where the last piece ended."""
        cdef size_t at = self.at, body, end
        cdef uint8_t kind
        while at + 5 <= self.filled:
            kind = self.data[at]
            body = at + 5
            end = at + 1 + get32(self.data + at + 1)
            if end < body or end > at + MESSAGE_MAX:
                raise lost(FOREIGN)
            if end > self.filled:
                break
            if kind == COMMAND_COMPLETE:
                self.tag = counted(self.data, at)
                self.done += 1
            elif kind == ERROR:
                self.failure = self.failed(PyBytes_FromStringAndSize(<char*>self.data + body, end - body))
            elif kind == READY:
                return self.ready(end)
            at = end
        self.at = at
        return False

    cdef object failed(self, bytes body):
        """The exception of an ErrorResponse: of the statement that fails when `done` of a group have ended."""
        cdef list members
        if type(self.sent) is not Pipeline:
            return self.fail(body, None if self.sent is None else self.sent.statement, 0, 0)
        members = (<Pipeline>self.sent).members
        if self.done >= len(members):
            return self.fail(body, None, 0, 0)
        return self.fail(body, (<Prepared?>members[self.done]).statement, self.done + 1, len(members))

    cdef bint ready(self, size_t end) except -1:
        self.end = end
        self.count, self.tag, self.done = self.tag, 0, 0
        if self.failure is None:
            return True
        failure, self.failure = self.failure, None
        raise failure.with_traceback(None)  # it may be raised again, and would collect tracebacks

    cdef size_t message(self, Prepared prepared, tuple arguments) except 0:
        """Write Bind, Execute and Sync to `out`; how long they are."""
        cdef size_t at
        cdef int i
        if len(arguments) != prepared.count:
            raise ValueError(f"{len(arguments)} arguments for {prepared.count} parameters")
        at = self.begin(prepared)
        for i in range(prepared.count):
            at = self.put_value(prepared, i, at, arguments[i])
        return self.finish(prepared, at)

    cdef size_t begin(self, Prepared prepared) except 0:
        """Write what is before the arguments, and reserve room for all but texts; where the first argument begins."""
        cdef size_t head = PyBytes_GET_SIZE(prepared.head)
        self.reserve(self.base + 5 + head + 12 * prepared.count + PyBytes_GET_SIZE(prepared.tail))
        memcpy(self.out + self.base + 5, PyBytes_AS_STRING(prepared.head), head)
        return self.base + 5 + head

    cdef size_t put_value(self, Prepared prepared, int i, size_t at, object value) except 0:
        """Write an argument; where the next one begins."""
        cdef Py_ssize_t length
        cdef const char* text
        if prepared.sizes[i]:
            return self.put_number(prepared, i, at, value)
        if value is None:
            put32(self.out + at, 0xFFFFFFFF)  # a length of -1 is NULL
            return at + 4
        if type(value) is not str:
            value = str(value)
        text = PyUnicode_AsUTF8AndSize(value, &length)
        return self.put_text(prepared, at, text, length)

    cdef size_t put_number(self, Prepared prepared, int i, size_t at, int64_t value) except 0:
        cdef uint8_t* out = self.out + at
        cdef uint8_t size = prepared.sizes[i]
        put32(out, size)
        if size == 4:
            if prepared.unsigned[i]:
                if value < 0 or value > 0xFFFFFFFF:
                    raise OverflowError(f"{value} does not fit an unsigned integer of 4 bytes")
            elif value != <int32_t>value:
                raise OverflowError(f"{value} does not fit an integer of 4 bytes")
            put32(out + 4, <uint32_t>value)
        elif size == 8:
            put32(out + 4, <uint32_t>(<uint64_t>value >> 32))
            put32(out + 8, <uint32_t>value)
        else:
            if value != <int16_t>value:
                raise OverflowError(f"{value} does not fit an integer of 2 bytes")
            out[4] = (<uint16_t>value) >> 8
            out[5] = value & 0xFF
        return at + 4 + size

    cdef size_t put_text(self, Prepared prepared, size_t at, const char* text, size_t length) except 0:
        self.reserve(at + length + 12 * prepared.count + PyBytes_GET_SIZE(prepared.tail))
        put32(self.out + at, <uint32_t>length)
        memcpy(self.out + at + 4, text, length)
        return at + 4 + length

    cdef size_t put_characters(self, Prepared prepared, size_t at, const uint8_t* characters, uint32_t width) except 0:
        """Write a text of at most so many characters of 4 bytes, which end before a zero."""
        cdef uint32_t character, length = 0
        self.reserve(at + width + 12 * prepared.count + PyBytes_GET_SIZE(prepared.tail))
        while length < width:
            memcpy(&character, characters + 4 * length, 4)
            if not character:
                break
            if character > 0x7F:
                raise ValueError("a drawn text is not ASCII")
            self.out[at + 4 + length] = <uint8_t>character
            length += 1
        put32(self.out + at, length)
        return at + 4 + length

    cdef size_t finish(self, Prepared prepared, size_t at) noexcept:
        """Write what is after the arguments; the length of the whole."""
        cdef size_t tail = PyBytes_GET_SIZE(prepared.tail)
        self.out[self.base] = 0x42  # B
        put32(self.out + self.base + 1, <uint32_t>(at - self.base - 1 + 4))  # Bind ends 4 bytes into the tail
        memcpy(self.out + at, PyBytes_AS_STRING(prepared.tail), tail)
        return at + tail



cdef list rows_of(const uint8_t* data, size_t size, tuple decoders):
    """The rows among whole messages, decoded."""
    cdef size_t at = 0
    cdef list rows = [], values
    while at < size:
        if data[at] == DATA_ROW:
            values = []
            read_row(data + at, decoders, len(decoders), values)
            rows.append(tuple(values))
        at += 1 + get32(data + at + 1)
    return rows


cdef int read_row(const uint8_t* message, tuple decoders, Py_ssize_t wanted, list into) except -1:
    """Append the leading values of a DataRow. StatementFailure (lost) where it does not hold them."""
    cdef size_t at = 7, end = 1 + <size_t>get32(message + 1)
    cdef uint32_t size
    cdef Py_ssize_t column
    for column in range(wanted):
        size = get32(message + at) if at + 4 <= end else MESSAGE_MAX
        at += 4
        if size == 0xFFFFFFFF:
            into.append(None)
        elif at + size > end:
            raise lost(FOREIGN)
        else:
            into.append(value_of(message + at, size, decoders[column]))
            at += size
    return 0


cdef object value_of(const uint8_t* at, uint32_t size, object decode):
    if decode is None:
        return integer(at, size)
    return decode(PyBytes_FromStringAndSize(<const char*>at, size))


cdef inline int64_t integer(const uint8_t* at, uint32_t size) noexcept:
    """A signed integer of at most 8 bytes, the highest first."""
    cdef int64_t value = <int8_t>at[0] if size else 0
    cdef uint32_t i
    for i in range(1, size):
        value = <int64_t>(<uint64_t>value << 8) | at[i]
    return value


cdef long counted(const uint8_t* data, size_t tag) noexcept:
    """The count at the end of the CommandComplete at `tag`; where it has none, as that of SHOW, the rows since the one
    before."""
    cdef long value = 0, place = 1
    cdef size_t at = tag + get32(data + tag + 1)
    while data[at - 1] >= 0x30 and data[at - 1] <= 0x39 and at > tag + 5:
        value += place * (data[at - 1] - 0x30)
        place *= 10
        at -= 1
    if place == 1:
        at = 0
        while at < tag:
            value = 0 if data[at] == COMMAND_COMPLETE else value + (data[at] == DATA_ROW)
            at += 1 + get32(data + at + 1)
    return value
