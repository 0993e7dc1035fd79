# The snapshot: COPY's lines, or the rows in libpq's own buffers, into records.
# Keeps true: a row that is not plain is left to Python, in its place.

cdef int read_line(CompiledTable table, const char* data, Py_ssize_t size) except -1:
    """The values of a COPY line into `table.new`; LEAVE when it has other columns."""
    cdef Py_ssize_t at = 0
    cdef Py_ssize_t start
    cdef int number = 0
    cdef Buffer* scratch = &table.scratch
    cdef const char* tab
    cdef const char* end
    if size < 1 or data[size - 1] != c'\n':
        return LEAVE
    end = data + size - 1
    scratch.size = 0
    reserve(scratch, size)  # so that it does not move while values point into it
    while True:
        if number == table.width:
            return LEAVE
        tab = <const char*>memchr(data, c'\t', end - data)
        if tab == NULL:
            tab = end
        read_field(table.new + number, data, tab - data, scratch)
        number += 1
        if tab == end:
            break
        data = tab + 1
    return OK if number == table.width else LEAVE


cdef int read_field(Value* value, const char* data, Py_ssize_t size, Buffer* scratch) noexcept nogil:
    cdef Py_ssize_t at = 0
    cdef Py_ssize_t start
    cdef char escaped
    value.data = data
    value.size = size
    if size == 0 or memchr(data, 92, size) == NULL:
        return 0
    if size == 2 and data[0] == 92 and data[1] == c'N':
        value.size = NULL_VALUE
        return 0
    start = scratch.size
    while at < size:
        if data[at] == 92 and at + 1 < size:
            at += 1
            escaped = data[at]
            if escaped == c'b':
                escaped = 8
            elif escaped == c'f':
                escaped = 12
            elif escaped == c'n':
                escaped = 10
            elif escaped == c'r':
                escaped = 13
            elif escaped == c't':
                escaped = 9
            elif escaped == c'v':
                escaped = 11
            scratch.data[scratch.size] = escaped
        else:
            scratch.data[scratch.size] = data[at]
        scratch.size += 1
        at += 1
    value.data = scratch.data + start
    value.size = scratch.size - start
    return 0


cdef int put_line(CompiledTable table, Encoded into, const char* data, Py_ssize_t size, int64_t ts_ms) except -1:
    """A COPY line as a record; LEAVE when it is not plain."""
    cdef Buffer* out = &table.out
    if read_line(table, data, size):
        return LEAVE
    table.keys.size = 0
    if table.key.put(&table.keys, table.new, False):
        return LEAVE
    out.size = 0
    put(out, "{\"before\":null,\"after\":", 23)
    if table.row.put(out, table.new, True):
        return LEAVE
    table.end(0, c'r', ts_ms)
    into.add(table, &table.keys, False, 0, 0)
    return OK


def encode_lines(CompiledTable table, list lines, Py_ssize_t at, int64_t lsn, int64_t commit_us, int64_t ts_ms):
    """Records of COPY's `lines[at:]`, up to one that is not plain."""
    cdef Encoded into = Encoded()
    cdef bytes line
    into.taken = at
    table.share_read(lsn, commit_us)
    while into.taken < PyList_GET_SIZE(lines):
        line = <bytes>PyList_GET_ITEM(lines, into.taken)
        if put_line(table, into, PyBytes_AS_STRING(line), PyBytes_GET_SIZE(line), ts_ms):
            break
        into.taken += 1
    return into


ctypedef int (*GetCopyData)(void* connection, char** data, int asynchronous) noexcept nogil
ctypedef void (*FreeMemory)(void* data) noexcept nogil

cdef enum:
    ROWS_AT_ONCE = 128  # taken without the interpreter's lock, which is asked for once for all of them


cdef class CopyData:
    """What libpq holds of a COPY: `get` and `free` are where its PQgetCopyData and PQfreemem lie."""

    cdef void* connection
    cdef GetCopyData get
    cdef FreeMemory free
    cdef char* rows[ROWS_AT_ONCE]
    cdef int sizes[ROWS_AT_ONCE]
    cdef int at
    cdef int held
    cdef int answer

    def __cinit__(self, uint64_t connection, uint64_t get, uint64_t free):
        self.connection = <void*>connection
        self.get = <GetCopyData>get
        self.free = <FreeMemory>free
        self.at = self.held = 0
        self.answer = 1

    def __dealloc__(self):
        while self.at < self.held:
            self.free(self.rows[self.at])
            self.at += 1

    cdef void fetch(self) noexcept nogil:
        """As many as there are now; `answer` is then what libpq says in place of the next one, or positive."""
        self.at = self.held = 0
        while self.held < ROWS_AT_ONCE:
            self.answer = self.get(self.connection, &self.rows[self.held], 1)
            if self.answer <= 0:
                break
            self.sizes[self.held] = self.answer
            self.held += 1

    cdef bint has_one(self) except -1:
        """Whether `rows[at]` is there; if not, `answer` says why."""
        if self.at == self.held and self.answer > 0:
            with nogil:
                self.fetch()
        return self.at < self.held

    cdef int outcome(self) noexcept:
        """Why there is none: 0 when libpq must read from the network, -1 at the end, -2 after an error."""
        cdef int answer = self.answer
        self.answer = 1
        return answer

    def take(self, Py_ssize_t pieces_max, int64_t bytes_max):
        """Pieces up to the limits or to where there is none, their bytes, and `outcome` or, at the limits, 1."""
        cdef list pieces = []
        cdef int64_t size = 0
        while PyList_GET_SIZE(pieces) < pieces_max and size < bytes_max:
            if not self.has_one():
                return pieces, size, self.outcome()
            pieces.append(PyBytes_FromStringAndSize(self.rows[self.at], self.sizes[self.at]))
            size += self.sizes[self.at]
            self.free(self.rows[self.at])
            self.at += 1
        return pieces, size, 1

    def encode(
        self,
        CompiledTable table,
        Encoded into,
        Py_ssize_t rows_max,
        int64_t bytes_max,
        int64_t lsn,
        int64_t commit_us,
        int64_t ts_ms,
    ):
        """Records added to `into` up to its limits, which is answered by 1, to a row that is not plain, by its line, or
        to where there is none, by `outcome`."""
        cdef bint left
        table.share_read(lsn, commit_us)
        while PyList_GET_SIZE(into.records) < rows_max and into.size < bytes_max:
            if not self.has_one():
                return self.outcome()
            left = put_line(table, into, self.rows[self.at], self.sizes[self.at], ts_ms)
            line = self.rows[self.at][: self.sizes[self.at]] if left else None
            self.free(self.rows[self.at])
            self.at += 1
            if left:
                return line
        return 1
