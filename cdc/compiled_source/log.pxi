# The log: whole transactions out of pgoutput's frames into records.
# Keeps true: a transaction that is not plain from its begin to its commit is left alone, with nothing of it kept.

cdef inline uint16_t u16(const uint8_t* data) noexcept nogil:
    return <uint16_t>(data[0] << 8 | data[1])


cdef inline uint32_t u32(const uint8_t* data) noexcept nogil:
    return <uint32_t>data[0] << 24 | <uint32_t>data[1] << 16 | <uint32_t>data[2] << 8 | data[3]


cdef inline uint64_t u64(const uint8_t* data) noexcept nogil:
    return <uint64_t>u32(data) << 32 | u32(data + 4)


cdef Py_ssize_t read_row(const uint8_t* data, Py_ssize_t at, Py_ssize_t size, Value* values, int width) noexcept nogil:
    """Where the row ends; -1 for one that is not plain."""
    cdef int number
    cdef Py_ssize_t length
    if at + 2 > size or u16(data + at) != width:
        return -1
    at += 2
    for number in range(width):
        if at >= size:
            return -1
        if data[at] == c't':
            if at + 5 > size:
                return -1
            length = u32(data + at + 1)
            at += 5
            if length > size - at:
                return -1
            values[number].data = <const char*>data + at
            values[number].size = length
            at += length
        elif data[at] == c'n':
            values[number].data = NULL
            values[number].size = NULL_VALUE
            at += 1
        else:
            return -1
    return at


cdef int put_change(
    CompiledTable table, Encoded into, const uint8_t* data, Py_ssize_t size, int64_t lsn, int64_t ordinal, int64_t ts_ms
) except -1:
    """The records of one row message, which `data` is."""
    cdef Py_ssize_t at = 6
    cdef uint8_t kind = data[0]
    cdef uint8_t old_kind = 0
    cdef Buffer* key = &table.keys
    cdef Buffer* old_key = &table.old_keys
    cdef Buffer* out = &table.out
    cdef bint moved = False
    if data[5] != c'N':
        old_kind = data[5]
        if kind == c'I' or (old_kind != c'K' and old_kind != c'O'):
            return LEAVE
        at = read_row(data, at, size, table.old, table.width)
        if at < 0:
            return LEAVE
        if kind == c'U':
            if at >= size or data[at] != c'N':
                return LEAVE
            at += 1
    elif kind == c'D':
        return LEAVE
    if kind != c'D':
        at = read_row(data, at, size, table.new, table.width)
    if at != size:
        return LEAVE
    if kind == c'D':
        return put_delete(table, into, old_kind, lsn, ordinal, ts_ms)
    key.size = 0
    if table.key.put(key, table.new, False):
        return LEAVE
    if old_kind:
        old_key.size = 0
        if table.key.put(old_key, table.old, False):
            return LEAVE
        moved = old_key.size != key.size or memcmp(old_key.data, key.data, key.size) != 0
        if moved and put_delete(table, into, old_kind, lsn, ordinal, ts_ms):
            return LEAVE
    out.size = 0
    put(out, "{\"before\":", 10)
    if old_kind == c'O' and not moved:
        if table.row.put(out, table.old, True):
            return LEAVE
    else:
        put(out, "null", 4)
    put(out, ",\"after\":", 9)
    if table.row.put(out, table.new, True):
        return LEAVE
    table.end(ordinal + moved, c'u' if kind == c'U' and not moved else c'c', ts_ms)
    into.add(table, key, False, 0, 0)
    return OK


cdef int put_delete(
    CompiledTable table, Encoded into, uint8_t old_kind, int64_t lsn, int64_t ordinal, int64_t ts_ms
) except -1:
    """The delete of the old row, and its tombstone."""
    cdef Buffer* key = &table.old_keys
    cdef Buffer* out = &table.out
    key.size = 0
    if table.key.put(key, table.old, False):
        return LEAVE
    out.size = 0
    put(out, "{\"before\":", 10)
    if old_kind == c'K':
        put(out, key.data, key.size)
    elif table.row.put(out, table.old, True):
        return LEAVE
    put(out, ",\"after\":null", 13)
    table.end(ordinal, c'd', ts_ms)
    into.add(table, key, False, 0, 0)
    into.add(table, key, True, lsn, ordinal)
    return OK


cdef class Log:
    """Encodes whole transactions out of frames. `table_of(oid)` gives a CompiledTable, or None to leave it to Python."""

    cdef object table_of
    cdef dict tables

    def __init__(self, table_of):
        self.table_of = table_of
        self.tables = {}

    def forget(self):
        """Ask for every table again."""
        self.tables.clear()

    cdef CompiledTable table(self, uint32_t oid):
        known = self.tables.get(oid)
        if known is None:
            known = self.tables[oid] = self.table_of(oid)
        return known

    def encode(self, list frames, Py_ssize_t at, int64_t after_lsn, int64_t ts_ms, int64_t records_max, int64_t bytes_max):
        """Take whole plain transactions from `frames[at:]` until one is not, or the limits are reached.

        `after_lsn`: transactions up to it are not expected.
        """
        cdef Encoded into = Encoded()
        cdef Py_ssize_t count = PyList_GET_SIZE(frames)
        cdef Py_ssize_t end
        cdef bytes frame
        cdef const uint8_t* data
        cdef int64_t sent
        into.taken = at
        into.committed_lsn = after_lsn
        while into.taken < count and PyList_GET_SIZE(into.records) < records_max and into.size < bytes_max:
            frame = <bytes>PyList_GET_ITEM(frames, into.taken)
            data = <const uint8_t*>PyBytes_AS_STRING(frame)
            if PyBytes_GET_SIZE(frame) != HEADER + 21 or data[0] != c'w' or data[HEADER] != c'B':
                break
            end = self.transaction(frames, into, ts_ms)
            if end < 0:
                break
            into.taken = end
        return into

    cdef Py_ssize_t transaction(self, list frames, Encoded into, int64_t ts_ms) except -2:
        """The frame after its commit; -1 when it is not plain, and then nothing of it was taken."""
        cdef Py_ssize_t at = into.taken
        cdef Py_ssize_t count = PyList_GET_SIZE(frames)
        cdef Py_ssize_t records = PyList_GET_SIZE(into.records)
        cdef int64_t size_before = into.size
        cdef uint64_t checksum_before = into.checksum
        cdef bytes frame = <bytes>PyList_GET_ITEM(frames, at)
        cdef const uint8_t* data = <const uint8_t*>PyBytes_AS_STRING(frame) + HEADER
        cdef Py_ssize_t size
        cdef int64_t lsn = <int64_t>u64(data + 1)
        cdef int64_t commit_us = <int64_t>u64(data + 9) + _EPOCH_US
        cdef object xid = u32(data + 17)
        cdef int64_t ordinal = 1
        cdef CompiledTable table
        cdef int outcome
        if lsn <= into.committed_lsn or commit_us < 0:
            return -1
        while True:
            at += 1
            if at >= count:
                break
            frame = <bytes>PyList_GET_ITEM(frames, at)
            data = <const uint8_t*>PyBytes_AS_STRING(frame) + HEADER
            size = PyBytes_GET_SIZE(frame) - HEADER
            if size < 6 or data[-HEADER] != c'w':
                break
            if data[0] == c'C':
                if size != 26 or data[1] != 0 or <int64_t>u64(data + 2) != lsn or <int64_t>u64(data + 10) <= lsn:
                    break
                # The commit's own time is the one that counts, should they ever differ.
                if <int64_t>u64(data + 18) + _EPOCH_US != commit_us:
                    break
                into.committed_lsn = lsn
                into.reached = <int64_t>u64(data + 10)
                into.source_ts_us = max(into.source_ts_us, commit_us)
                into.behind_us = <int64_t>u64(data - 8) + _EPOCH_US - commit_us
                return at + 1
            if data[0] != c'I' and data[0] != c'U' and data[0] != c'D':
                break
            table = self.table(u32(data + 1))
            if table is None:
                break
            if table.shared_lsn != lsn:
                table.share(table.streamed, xid, lsn, commit_us // 1000)
            outcome = put_change(table, into, data, size, lsn, ordinal, ts_ms)
            if outcome:
                break
            ordinal += 2
        del into.records[records:]
        into.size = size_before
        into.checksum = checksum_before
        return -1
