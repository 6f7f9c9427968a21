# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, nonecheck=True, cdivision=True
"""The socket of a database session, compiled: the common part of the protocols of the engines.

Flow: the load loop calls `put` or `put_row` -> the engine's class writes a message into `out` and sends it (`push`) -> the
loop calls `get` -> what is there is read into `data`, and the engine's `walk` says whether the answer is complete. All of
these are calls in C. The socket is non-blocking, so the GIL is kept.

The connections of a load loop `share` one buffer for messages and one for answers: with hundreds of connections, buffers of
their own are in no cache of the processor when their turn comes.
"""

from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memmove, strerror
from cpython.bytes cimport PyBytes_FromStringAndSize

cdef enum:
    OUT_BYTES = 512
    IN_BYTES = 4096
    SHARED_IN_BYTES = 1 << 16
    SSL_ERROR_WANT_READ = 2
    SSL_ERROR_WANT_WRITE = 3


cdef extern from "sys/socket.h":
    ssize_t c_send "send"(int fd, const void* data, size_t size, int flags) nogil
    ssize_t recv(int fd, void* data, size_t size, int flags) nogil
    int MSG_DONTWAIT, MSG_NOSIGNAL


ctypedef int (*TlsRead)(void* ssl, void* data, int size) noexcept
ctypedef int (*TlsWrite)(void* ssl, const void* data, int size) noexcept
ctypedef int (*TlsHasPending)(const void* ssl) noexcept
ctypedef int (*TlsGetError)(const void* ssl, int returned) noexcept
ctypedef void (*TlsClearError)() noexcept
ctypedef void (*TlsSetReadAhead)(void* ssl, int yes) noexcept

cdef TlsRead tls_read = NULL
cdef TlsWrite tls_write = NULL
cdef TlsHasPending tls_has_pending = NULL
cdef TlsGetError tls_get_error = NULL
cdef TlsClearError tls_clear_error = NULL
cdef TlsSetReadAhead tls_set_read_ahead = NULL


def use_tls(size_t read, size_t write, size_t has_pending, size_t get_error, size_t clear_error, size_t set_read_ahead):
    """Take the addresses of the functions of an OpenSSL: SSL_read, SSL_write, SSL_has_pending, SSL_get_error, ERR_clear_error,
    SSL_set_read_ahead."""
    global tls_read, tls_write, tls_has_pending, tls_get_error, tls_clear_error, tls_set_read_ahead
    tls_read, tls_write = <TlsRead>read, <TlsWrite>write
    tls_has_pending, tls_get_error = <TlsHasPending>has_pending, <TlsGetError>get_error
    tls_clear_error, tls_set_read_ahead = <TlsClearError>clear_error, <TlsSetReadAhead>set_read_ahead


cdef uint8_t* shared_out = NULL
cdef size_t shared_out_size = 0, held_bytes = 0  # the messages that are held stand at its beginning
cdef uint8_t shared_in[SHARED_IN_BYTES]


cdef void none_is_held() noexcept:
    """All messages that were held are sent, or are not to be sent."""
    global held_bytes
    held_bytes = 0


cdef class Prepared:
    """A statement that the server has prepared."""


cdef class Layout:
    """Places of a statement's drawn values in a row of a structured array: `dtype`, which begins there at `offset`."""

    def __cinit__(self, object dtype, Py_ssize_t offset):
        cdef size_t fields = max(len(dtype.names or ()), 1)
        self.count = 0
        self.offsets = <uint32_t*>calloc(fields, sizeof(uint32_t))
        self.widths = <uint32_t*>calloc(fields, sizeof(uint32_t))
        if self.offsets == NULL or self.widths == NULL:
            raise MemoryError

    def __init__(self, object dtype, Py_ssize_t offset):
        for name in dtype.names or ():
            kind, at = dtype.fields[name][:2]
            if kind.kind != "U" and (kind.kind, kind.itemsize) != ("i", 8):
                raise ValueError(f"a drawn value of {kind}")
            self.offsets[self.count] = offset + at
            self.widths[self.count] = kind.itemsize // 4 if kind.kind == "U" else 0
            self.count += 1

    def __dealloc__(self):
        free(self.offsets)
        free(self.widths)

    cdef object value(self, int field, const uint8_t* row):
        cdef int64_t number
        cdef uint32_t character, i
        cdef const uint8_t* at = row + self.offsets[field]
        cdef list characters = []
        if not self.widths[field]:
            memcpy(&number, at, sizeof(number))
            return number
        for i in range(self.widths[field]):
            memcpy(&character, at + 4 * i, 4)
            if not character:
                break
            characters.append(chr(character))
        return "".join(characters)

    cdef tuple values(self, const uint8_t* row):
        return tuple([self.value(i, row) for i in range(self.count)])


cdef class Wire:
    """The socket of an idle connection: statements out, answers in. The descriptor stays its owner's.

    `room(fd, rest)` sends what the kernel's buffer did not take. An engine overrides `put`, `put_row`, `walk`, `first`,
    `broken` and `rows`. An answer begins at `data`, and ends at `end` (0 while it is not complete). `reserve` makes room for a
    message at `out`, which is valid until it is sent or held.

    After `encrypt` the stream is that of a TLS session; `room(fd, b"")` then waits until the kernel's buffer takes more. An engine
    with another library for TLS sets `encrypted`, and overrides `push_encrypted` and `fill_encrypted`.
    """

    def __cinit__(self):
        self.out = self.data = self.kept = NULL
        self.tls, self.encrypted, self.ahead, self.held, self.shares = NULL, False, False, False, False

    def __dealloc__(self):
        free(self.kept)
        if not self.shares:
            free(self.out)

    cdef void share(self) noexcept:
        """Use the buffers that all connections of the load loop share, whose thread alone uses this connection from now on: a
        whole answer is valid until the next one of any of them is read."""
        if not self.shares:
            free(self.out)
            self.out, self.out_size, self.shares = NULL, 0, True

    def send(self, Prepared prepared not None, object arguments):
        """Send one statement."""
        self.put(prepared, arguments if type(arguments) is tuple else tuple(arguments))

    def pause(self):
        """Leave the stream to its owner, which does not look for records that were read ahead of it, until the next statement."""
        if self.ahead:
            self.ahead = False
            tls_set_read_ahead(self.tls, 0)

    def receive(self):
        """Read what is there; whether the answer is complete."""
        return self.get()

    def exchange(self, Prepared prepared not None, object arguments):
        """`send`, then `receive` at once."""
        self.put(prepared, arguments if type(arguments) is tuple else tuple(arguments))
        return self.get()

    def rows(self):
        """The rows of the last answer, decoded."""
        raise NotImplementedError

    cdef bint put(self, Prepared prepared, tuple arguments) except -1:
        """Send a statement."""
        raise NotImplementedError

    cdef bint put_row(self, Prepared prepared, Layout layout, const uint8_t* row, list kept, tuple places) except -1:
        """Send a statement whose arguments are values of a row, or, by their `places`, of `kept` and then the row."""
        raise NotImplementedError

    cdef bint walk(self) except -1:
        """Take in what was read, from `at` to `filled`; whether the answer is complete. Raises StatementFailure."""
        raise NotImplementedError

    cdef bint first(self, Py_ssize_t wanted, list kept) except -1:
        """Append the leading values of the last answer's first row; whether there was one with so many."""
        raise NotImplementedError

    cdef object broken(self, str text, bint sending):
        """The exception of a connection that has ended."""
        raise NotImplementedError

    cdef int encrypt(self, size_t tls) except -1:
        """Use the `SSL` at this address, of the OpenSSL of `use_tls`."""
        if tls and tls_read == NULL:
            raise ValueError("the functions of TLS are not known")
        self.tls, self.encrypted = <void*>tls, tls != 0
        return 0

    cdef bint push_encrypted(self, size_t length) except -1:
        """`push` by TLS."""
        cdef int written
        if not self.ahead:  # one read of the socket for a record, in place of one for its head and one for its body
            self.ahead = True
            tls_set_read_ahead(self.tls, 1)
        while True:
            tls_clear_error()
            written = tls_write(self.tls, self.out, <int>length)
            if written > 0:
                return True
            if tls_get_error(self.tls, written) != SSL_ERROR_WANT_WRITE:
                raise self.broken("the server closed the connection", True)
            self.unsent(b"")  # then the same again, as SSL_write demands

    cdef bint fill_encrypted(self) except -1:
        """`fill` by TLS: all records that have arrived, as none of them makes the socket readable again."""
        cdef int got, error
        cdef bint any = False
        while True:
            if self.filled == self.size:
                self.grow()
            tls_clear_error()
            got = tls_read(self.tls, self.data + self.filled, <int>(self.size - self.filled))
            if got <= 0:
                error = tls_get_error(self.tls, got)
                if any or error == SSL_ERROR_WANT_READ or error == SSL_ERROR_WANT_WRITE:
                    break  # the next read raises for an end that came after the last error of the server
                raise self.broken("the server closed the connection", False)
            any = True
            self.filled += got
            if not tls_has_pending(self.tls):
                break
        return any

    cdef bint push(self, Prepared prepared, size_t length) except -1:
        """Send what `out` has, or keep it for `release` if it is `held`."""
        global held_bytes
        self.sent, self.length, self.place = prepared, length, held_bytes
        if self.held:
            held_bytes += length
            return True
        return self.transmit()

    cdef bint release(self) except -1:
        """Send the message that is held."""
        self.held = False
        return self.transmit()

    cdef bint transmit(self) except -1:
        cdef size_t length = self.length
        if self.shares:
            self.out = shared_out + self.place
        if self.encrypted:
            return self.push_encrypted(length)
        cdef ssize_t written = c_send(self.fd, self.out, length, MSG_DONTWAIT | MSG_NOSIGNAL)
        if written == <ssize_t>length:
            return True
        if written < 0:
            if errno != EAGAIN and errno != EINTR:
                raise self.broken(strerror(errno).decode(), True)
            written = 0
        self.unsent(PyBytes_FromStringAndSize(<char*>self.out + written, length - written))
        return True

    cdef object unsent(self, bytes rest):
        """Send what the kernel's buffer did not take."""
        return self.room(self.fd, rest)

    def take_in(self):
        """Read what is there, and look at it later: a server that cannot send its answers does not read either."""
        if self.fill():
            self.keep()

    cdef bint get(self) except -1:
        if not self.fill():
            return False
        try:
            return self.walk()
        finally:
            if self.filled != self.end:
                self.keep()

    cdef int keep(self) except -1:
        """Move what was read to a buffer of this connection."""
        cdef uint8_t* larger
        cdef size_t size = max(self.filled, IN_BYTES)
        if self.data == self.kept:
            return 0
        if size > self.kept_size:
            larger = <uint8_t*>realloc(self.kept, size)
            if larger == NULL:
                raise MemoryError
            self.kept, self.kept_size = larger, size
        memcpy(self.kept, self.data, self.filled)
        self.data, self.size = self.kept, self.kept_size
        return 0

    cdef bint fill(self) except -1:
        """Read what is there into `data`; False if that is nothing."""
        cdef ssize_t got
        if self.end:  # the answer before this one ended here; a notice may have come after it
            if self.filled > self.end:
                memmove(self.data, self.data + self.end, self.filled - self.end)
            self.filled -= self.end
            self.at = self.end = 0
        if self.shares and not self.filled:
            self.data, self.size = shared_in, SHARED_IN_BYTES
        if self.filled == self.size:
            self.grow()
        if self.encrypted:
            return self.fill_encrypted()
        while True:
            got = recv(self.fd, self.data + self.filled, self.size - self.filled, MSG_DONTWAIT)
            if got > 0:
                break
            if got == 0:
                raise self.broken("the server closed the connection", False)
            if errno == EAGAIN:
                return False
            if errno != EINTR:
                raise self.broken(strerror(errno).decode(), False)
        self.filled += got
        return True

    cdef int grow(self) except -1:
        cdef uint8_t* larger
        cdef size_t size = max(self.size * 2, IN_BYTES)
        self.keep()
        larger = <uint8_t*>realloc(self.kept, size)
        if larger == NULL:
            raise MemoryError
        self.data = self.kept = larger
        self.size = self.kept_size = size
        return 0

    cdef int reserve(self, size_t need) except -1:
        """Make `out` at least so long."""
        global shared_out, shared_out_size
        cdef uint8_t* larger
        if self.shares:
            need += held_bytes
        if need > (shared_out_size if self.shares else self.out_size):
            need = max(need * 2, OUT_BYTES)
            larger = <uint8_t*>realloc(shared_out if self.shares else self.out, need)
            if larger == NULL:
                raise MemoryError
            if self.shares:
                shared_out, shared_out_size = larger, need
            else:
                self.out, self.out_size = larger, need
        if self.shares:
            self.out = shared_out + held_bytes
        return 0
