# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, nonecheck=True, cdivision=True
"""The hot path of MySQL's sessions: COM_STMT_EXECUTE out, the answer in, without a Python object per message.

Flow: `put` writes the NULL bits, the types and the values of the arguments behind the statement's own bytes and sends -> the
answer is walked packet by packet, in place; definitions of columns are passed over -> rows are decoded where a transaction
wants them, by decoders that are kept with the bytes of the definitions that they were made from (`prefix`).

Same behaviour as `protocol.WireSocket`, which takes over where this module was not built; the same tests run on both.
"""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy, memset
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.long cimport PyLong_AsLongLong, PyLong_AsUnsignedLongLong
from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_DecodeUTF8

from proveout.agent.engines cimport wire_native
from proveout.agent.engines.wire_native cimport Layout

from proveout.agent.engines.mysql import protocol as binary_values
from proveout.agent.engines.mysql.protocol import FOREIGN, LOCAL_FILE_WANTED, MALFORMED, SERVER_GONE, SERVER_LOST, TOO_LARGE

cdef enum:
    OK = 0x00
    LOCAL_FILE = 0xFB
    END = 0xFE
    ERROR = 0xFF
    END_MAX = 9  # bytes of an EOF packet, less than
    MORE_RESULTS = 0x08
    PACKET_MAX = (1 << 24) - 1
    INTEGER = 8  # MYSQL_TYPE_LONGLONG
    UNSIGNED_ARGUMENT = 0x80
    TEXT = 253  # MYSQL_TYPE_VAR_STRING
    OCTETS = 252  # MYSQL_TYPE_BLOB
    NOTHING = 6  # MYSQL_TYPE_NULL
    VALUE_MAX = 9  # bytes of a number, or of a text's length
    HEAD = -1  # in place of the number of definitions to come: a result begins,
    ROWS = -2  # its rows come
    OTHER = 0  # decoded in Python
    STRING = 16
    UNSIGNED = 32  # and the bytes of an integer

cdef size_t MESSAGE_MAX = binary_values.MESSAGE_MAX
cdef object INTEGER_MAX = (1 << 63) - 1


cdef class Prepared(wire_native.Prepared):
    """A statement of one session. `start` is the payload up to the NULL bits, `order` says which argument each placeholder
    stands for. `kinds` and `decoders` are those of the columns that `prefix`, all bytes before the rows, defines."""

    cdef bytes start, prefix
    cdef tuple kinds, decoders
    cdef int count, least
    cdef int* order

    def __cinit__(self, object statement, bytes start, tuple order):
        self.order = <int*>malloc(max(len(order), 1) * sizeof(int))
        if self.order == NULL:
            raise MemoryError

    def __init__(self, object statement, bytes start, tuple order):
        if len(start) > MESSAGE_MAX:
            raise binary_values.too_long()
        self.statement, self.start, self.prefix = statement, start, b""
        self.kinds = self.decoders = ()
        self.count, self.least = len(order), 0
        for i, argument in enumerate(order):
            self.order[i] = argument
            self.least = max(self.least, argument + 1)

    def __dealloc__(self):
        free(self.order)


cdef class Wire(wire_native.Wire):
    """The socket of an idle connection: statements out, answers in. The descriptor stays its owner's.

    `fail(body, statement)` makes the exception of an error packet, `lost(text, code)` that of a connection that has ended;
    `room(fd, rest)` sends what the kernel's buffer did not take. `stream`, a `protocol.Stream`, reads an encrypted connection, on
    which `room` sends all.
    """

    cdef object fail, lost, stream
    cdef int64_t columns, affected, found
    cdef size_t begun, defined, rows_at, definitions  # where rows and definitions of the running answer, and the last, begin
    cdef size_t types_at, values_at

    def __init__(self, int fd, object fail, object lost, object room, object stream=None):
        self.fd, self.fail, self.lost, self.room = fd, fail, lost, room
        self.stream, self.encrypted = stream, stream is not None
        self.rows_at = self.definitions = 0
        self.afresh()

    cdef void afresh(self) noexcept:
        """The next packet begins an answer. `rows_at` and `begun` are 0 without rows."""
        self.columns = HEAD
        self.affected = self.found = 0
        self.begun = self.defined = 0

    cdef object broken(self, str text, bint sending):
        return self.lost(text, SERVER_GONE if sending else SERVER_LOST)

    cdef bint push_encrypted(self, size_t length) except -1:
        self.unsent(PyBytes_FromStringAndSize(<char*>self.out, length))
        return True

    cdef bint fill_encrypted(self) except -1:
        try:
            piece = self.stream.read(<Py_ssize_t>self.size)
        except OSError as error:
            raise self.broken(error.strerror or str(error), False) from None
        if piece is None:
            return False
        if not piece:
            raise self.broken("the server closed the connection", False)
        while self.size - self.filled < <size_t>len(piece):
            self.grow()
        memcpy(self.data + self.filled, PyBytes_AS_STRING(piece), len(piece))
        self.filled += len(piece)
        return True

    # ---- statements out ---------------------------------------------------------------------------------------------

    cdef bint put(self, wire_native.Prepared statement, tuple arguments) except -1:
        cdef Prepared prepared = <Prepared?>statement
        cdef int i
        if len(arguments) < prepared.least:
            raise ValueError(f"{len(arguments)} arguments for {prepared.least}")
        self.begin(prepared)
        for i in range(prepared.count):
            self.put_value(prepared, i, arguments[prepared.order[i]])
        return self.push(prepared, self.finish())

    cdef bint put_row(
        self, wire_native.Prepared statement, Layout layout, const uint8_t* row, list kept, tuple places
    ) except -1:
        cdef Prepared prepared = <Prepared?>statement
        cdef Py_ssize_t held = 0 if places is None else len(kept), place
        cdef int i
        cdef int64_t number
        if (layout.count if places is None else len(places)) < prepared.least:
            raise ValueError(f"{layout.count} drawn values for {prepared.least} arguments")
        self.begin(prepared)
        for i in range(prepared.count):
            place = prepared.order[i] if places is None else <Py_ssize_t?>places[prepared.order[i]]
            if place < held:
                self.put_value(prepared, i, kept[place])
                continue
            place -= held
            if layout.widths[place]:
                self.put_characters(prepared, i, row + layout.offsets[place], layout.widths[place])
            else:
                memcpy(&number, row + layout.offsets[place], sizeof(number))
                self.put_number(i, number)
        return self.push(prepared, self.finish())

    cdef int begin(self, Prepared prepared) except -1:
        """Write what is before the types, and reserve room for types and values other than texts."""
        cdef size_t start = PyBytes_GET_SIZE(prepared.start), nulls = (prepared.count + 7) // 8
        self.reserve(4 + start + nulls + 1 + (2 + VALUE_MAX) * prepared.count)
        memcpy(self.out + 4, PyBytes_AS_STRING(prepared.start), start)
        self.values_at = 4 + start
        if prepared.count:
            memset(self.out + 4 + start, 0, nulls)
            self.out[4 + start + nulls] = 1  # types follow
            self.types_at = 4 + start + nulls + 1
            self.values_at = self.types_at + 2 * prepared.count
        return 0

    cdef inline void put_type(self, int i, uint8_t kind) noexcept:
        self.out[self.types_at + 2 * i] = kind
        self.out[self.types_at + 2 * i + 1] = 0

    cdef int put_value(self, Prepared prepared, int i, object value) except -1:
        """Write an argument."""
        cdef Py_ssize_t length
        cdef const char* text
        if value is None:
            self.put_type(i, NOTHING)
            self.out[self.types_at - 1 - (prepared.count + 7) // 8 + i // 8] |= 1 << i % 8
        elif isinstance(value, int) and value > INTEGER_MAX:  # a bigint without a sign
            self.put_number(i, <int64_t>PyLong_AsUnsignedLongLong(value))
            self.out[self.types_at + 2 * i + 1] = UNSIGNED_ARGUMENT
        elif isinstance(value, int):
            self.put_number(i, PyLong_AsLongLong(value))
        else:
            if type(value) is bytes:
                text, length = PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value)
                self.put_type(i, OCTETS)
            else:
                if type(value) is not str:
                    value = str(value)
                text = PyUnicode_AsUTF8AndSize(value, &length)
                self.put_type(i, TEXT)
            self.room_for(prepared, length)
            self.put_length(length)
            memcpy(self.out + self.values_at, text, length)
            self.values_at += length
        return 0

    cdef inline void put_number(self, int i, int64_t value) noexcept:
        self.put_type(i, INTEGER)
        little(self.out + self.values_at, <uint64_t>value, 8)
        self.values_at += 8

    cdef int put_characters(self, Prepared prepared, int i, const uint8_t* characters, uint32_t width) except -1:
        """Write a text of at most so many characters of 4 bytes, which end before a zero."""
        cdef uint32_t character, length = 0, at
        while length < width:
            memcpy(&character, characters + 4 * length, 4)
            if not character:
                break
            if character > 0x7F:
                raise ValueError("a drawn text is not ASCII")
            length += 1
        self.put_type(i, TEXT)
        self.room_for(prepared, length)
        self.put_length(length)
        for at in range(length):
            self.out[self.values_at + at] = characters[4 * at] | characters[4 * at + 3]  # one is 0 in either byte order
        self.values_at += length
        return 0

    cdef int room_for(self, Prepared prepared, size_t length) except -1:
        """Reserve room for a text and the values behind it."""
        self.reserve(self.values_at + length + VALUE_MAX * prepared.count)
        return 0

    cdef void put_length(self, uint64_t length) noexcept:
        """See `binary_values.length`."""
        cdef uint8_t* at = self.out + self.values_at
        cdef int width = 2 if length < 1 << 16 else 3 if length < 1 << 24 else 8
        if length < 251:
            at[0] = <uint8_t>length
            self.values_at += 1
            return
        at[0] = 0xFC if width == 2 else 0xFD if width == 3 else 0xFE
        little(at + 1, length, width)
        self.values_at += 1 + width

    cdef size_t finish(self) except 0:
        """Write the packet's head; the length of the whole."""
        cdef size_t length = self.values_at - 4
        if length > MESSAGE_MAX:
            raise binary_values.too_long()
        little(self.out, length, 3)
        self.out[3] = 0
        return self.values_at

    # ---- answers in -------------------------------------------------------------------------------------------------

    cdef bint walk(self) except -1:
        cdef size_t at = self.at, body, end
        cdef uint32_t size
        while at + 4 < self.filled:
            size = size_at(self.data + at)
            body = at + 4
            end = body + size
            if size == PACKET_MAX or not size:
                raise self.lost(TOO_LARGE, SERVER_LOST)
            if end > self.filled:
                break
            if self.packet(body, end):
                return self.ready(end)
            at = end
        self.at = at
        return False

    cdef bint packet(self, size_t body, size_t end) except -1:
        """One packet; True when it ends the answer. Raises StatementFailure for an error, which ends it too."""
        cdef uint8_t kind = self.data[body]
        if kind == ERROR:
            statement = None if self.sent is None else self.sent.statement
            self.end, self.rows_at = end, 0
            self.afresh()
            failure = self.fail(PyBytes_FromStringAndSize(<char*>self.data + body + 1, end - body - 1), statement)
            raise failure.with_traceback(None)  # it may be raised again, and would collect tracebacks
        if self.columns == HEAD:
            return self.head(body, end)
        if kind == END and end - body < END_MAX:
            if end - body < 5:
                raise self.lost(FOREIGN, SERVER_LOST)
            if self.columns == 0:
                self.columns, self.begun = ROWS, end
                return False
            return self.over(self.data[body + 3])
        if self.columns > 0:
            self.columns -= 1
        else:
            self.found += 1
        return False

    cdef bint head(self, size_t body, size_t end) except -1:
        """The first packet of a result: rows affected, or how many columns there are."""
        cdef size_t at = body
        if self.data[body] == OK:
            at += 1
            self.affected = self.number(&at, end)
            self.number(&at, end)  # the last number that the server has given
            if at >= end:
                raise self.lost(FOREIGN, SERVER_LOST)
            return self.over(self.data[at])
        if self.data[body] == LOCAL_FILE:
            raise self.lost(LOCAL_FILE_WANTED, SERVER_LOST)
        self.columns = self.number(&at, end)
        self.defined, self.found = end, 0
        return False

    cdef bint over(self, uint8_t status) noexcept:
        """A result has ended; another follows when the server announces one."""
        self.columns = HEAD
        return not status & MORE_RESULTS

    cdef bint ready(self, size_t end) noexcept:
        self.end = end
        self.rows_at, self.definitions = self.begun, self.defined
        self.count = self.found if self.begun else self.affected
        self.afresh()
        return True

    cdef int64_t number(self, size_t* at, size_t end) except? -1:
        """A number of variable width, and `at` behind it."""
        cdef uint8_t mark = self.data[at[0]] if at[0] < end else 0
        cdef int width = 0 if mark < 251 else 2 if mark == 0xFC else 3 if mark == 0xFD else 8
        if at[0] + width >= end:
            raise self.lost(FOREIGN, SERVER_LOST)
        at[0] += 1 + width
        return mark if not width else <int64_t>unsigned(self.data + at[0] - width, width)

    # ---- rows -------------------------------------------------------------------------------------------------------

    def rows(self):
        """The rows of the last answer, decoded; of its last result, when a procedure gave several."""
        cdef list rows = []
        cdef Prepared prepared
        cdef size_t at = self.rows_at, end
        if at and self.end:
            prepared = self.understood()
            while self.data[at + 4] == OK:
                end = at + 4 + size_at(self.data + at)
                rows.append(tuple(self.row(at + 4, end, prepared, len(prepared.kinds))))
                at = end
        return rows

    cdef bint first(self, Py_ssize_t wanted, list kept) except -1:
        cdef Prepared prepared
        cdef size_t at = self.rows_at
        if not at or not self.end or self.data[at + 4] != OK:
            return False
        prepared = self.understood()
        if len(prepared.kinds) < wanted:
            return False
        kept.extend(self.row(at + 4, at + 4 + size_at(self.data + at), prepared, wanted))
        return True

    cdef Prepared understood(self):
        """The statement sent, with the decoders of the answer at hand."""
        cdef Prepared prepared = <Prepared>self.sent
        cdef size_t at = self.definitions, end, length = PyBytes_GET_SIZE(prepared.prefix)
        cdef list kinds = [], decoders = []
        if length == self.rows_at and not memcmp(PyBytes_AS_STRING(prepared.prefix), self.data, length):
            return prepared
        prefix = PyBytes_FromStringAndSize(<char*>self.data, self.rows_at)
        columns = prepared.statement.columns
        while at + END_MAX < self.rows_at:
            wanted = columns[len(kinds)] if len(kinds) < len(columns) else None
            end = at + 4 + size_at(self.data + at)
            try:
                charset, kind, flags, digits = binary_values.described(prefix[at + 4 : end])
            except MALFORMED:
                raise self.lost(FOREIGN, SERVER_LOST) from None
            decode = binary_values.decoder(charset, kind, flags, digits, wanted)
            decoders.append(decode)
            kinds.append(STRING if decode is binary_values.string else kind_of(kind, flags, wanted))
            at = end
        prepared.prefix, prepared.kinds, prepared.decoders = prefix, tuple(kinds), tuple(decoders)
        return prepared

    cdef list row(self, size_t at, size_t end, Prepared prepared, Py_ssize_t wanted):
        """The leading values of a binary row, from its first byte on. Its NULL bits begin with the third."""
        cdef list values = []
        cdef size_t begin = at, nulls = at + 1, size
        cdef Py_ssize_t place
        cdef int kind
        cdef bytes whole = None
        at += 1 + (len(prepared.kinds) + 9) // 8
        if at > end:
            raise self.lost(FOREIGN, SERVER_LOST)
        for place in range(wanted):
            if self.data[nulls + (place + 2) // 8] >> (place + 2) % 8 & 1:
                values.append(None)
                continue
            kind = prepared.kinds[place]
            if kind == OTHER:
                if whole is None:
                    whole = PyBytes_FromStringAndSize(<char*>self.data + begin, end - begin)
                try:
                    value, after = prepared.decoders[place](whole, at - begin)
                except MALFORMED:
                    raise self.lost(FOREIGN, SERVER_LOST) from None
                values.append(value)
                at = begin + <size_t>after
                if at > end:
                    raise self.lost(FOREIGN, SERVER_LOST)
            elif kind == STRING:
                size = <size_t>self.number(&at, end)
                if size > end - at:
                    raise self.lost(FOREIGN, SERVER_LOST)
                values.append(PyUnicode_DecodeUTF8(<char*>self.data + at, size, "replace"))
                at += size
            else:
                size = kind & ~UNSIGNED
                if size > end - at:
                    raise self.lost(FOREIGN, SERVER_LOST)
                if kind & UNSIGNED:
                    values.append(unsigned(self.data + at, size))
                else:
                    values.append(signed(self.data + at, size))
                at += size
        return values


cdef int kind_of(int kind, int flags, object wanted):
    """How to decode a column in the binary form: the bytes of an integer with UNSIGNED or not, or OTHER."""
    layout = binary_values.FIXED.get(kind, ("<x",))
    size = {"b": 1, "h": 2, "i": 4, "q": 8}.get(layout[0][1:].lower(), 0)
    if not size or wanted not in (None, int):
        return OTHER
    return size | (UNSIGNED if layout[1 if flags & binary_values.UNSIGNED else 0][1:].isupper() else 0)


cdef inline uint32_t size_at(const uint8_t* at) noexcept:
    """The length of a packet's payload."""
    return at[0] | <uint32_t>at[1] << 8 | <uint32_t>at[2] << 16


cdef inline void little(uint8_t* at, uint64_t value, int width) noexcept:
    """Write a number, the lowest byte first."""
    cdef int i
    for i in range(width):
        at[i] = <uint8_t>(value >> 8 * i)


cdef inline uint64_t unsigned(const uint8_t* at, int width) noexcept:
    cdef uint64_t value = 0
    cdef int i
    for i in range(width):
        value |= <uint64_t>at[i] << 8 * i
    return value


cdef inline int64_t signed(const uint8_t* at, int width) noexcept:
    cdef uint64_t value = unsigned(at, width)
    if width == 1:
        return <int8_t>value
    if width == 2:
        return <int16_t>value
    if width == 4:
        return <int32_t>value
    return <int64_t>value
