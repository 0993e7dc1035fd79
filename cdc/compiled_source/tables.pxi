# A table's rows: its fields, the envelope around them, and the records that a call gives.
# Keeps true: a record, its bytes and its checksum are counted once.

cdef class Fields:
    """Some columns of a table, as the members of a JSON object: (number, `"name":`, kind, encoder of CALLED)."""

    cdef int count
    cdef int* numbers
    cdef int* kinds
    cdef list names
    cdef list encoders

    def __cinit__(self, fields):
        self.count = len(fields)
        self.numbers = <int*>PyMem_Malloc(max(1, self.count) * sizeof(int))
        self.kinds = <int*>PyMem_Malloc(max(1, self.count) * sizeof(int))
        if self.numbers == NULL or self.kinds == NULL:
            raise MemoryError
        self.names = []
        self.encoders = []
        opening = b"{"
        for at, (number, name, kind, encode) in enumerate(fields):
            self.numbers[at] = number
            self.kinds[at] = kind
            self.names.append(opening + name)
            self.encoders.append(encode)
            opening = b","

    def __dealloc__(self):
        PyMem_Free(self.numbers)
        PyMem_Free(self.kinds)

    cdef int put(self, Buffer* buffer, Value* values, bint nullable) except -1:
        """The object; LEAVE for NULL where there must be none, and for what a type does not print."""
        cdef int at
        cdef Value* value
        for at in range(self.count):
            put_bytes(buffer, <bytes>PyList_GET_ITEM(self.names, at))
            value = values + self.numbers[at]
            if value.size == NULL_VALUE:
                if not nullable:
                    return LEAVE
                put(buffer, "null", 4)
            elif put_value(buffer, value, self.kinds[at], <object>PyList_GET_ITEM(self.encoders, at)):
                return LEAVE
        return put_char(buffer, c'}')


cdef class CompiledTable:
    """The rows of one relation. `source` is the envelope's text around the commit's time and the transaction's id."""

    cdef object topic
    cdef uint32_t partitions
    cdef int width
    cdef Fields key
    cdef Fields row
    cdef bytes head
    cdef bytes streamed
    cdef bytes read
    cdef Value* old
    cdef Value* new
    cdef Buffer keys
    cdef Buffer old_keys
    cdef Buffer out
    cdef Buffer shared
    cdef Buffer scratch
    cdef int64_t shared_lsn

    def __cinit__(self, topic, partitions, width, key, row, head, streamed, read):
        self.topic = topic
        self.partitions = partitions
        self.width = width
        self.key = Fields(key)
        self.row = Fields(row)
        self.head = head
        self.streamed = streamed
        self.read = read
        self.shared_lsn = -1
        self.old = <Value*>PyMem_Malloc(max(1, width) * sizeof(Value))
        self.new = <Value*>PyMem_Malloc(max(1, width) * sizeof(Value))
        if self.old == NULL or self.new == NULL:
            raise MemoryError

    def __dealloc__(self):
        PyMem_Free(self.old)
        PyMem_Free(self.new)
        for buffer in (<uint64_t>&self.keys, <uint64_t>&self.old_keys, <uint64_t>&self.out, <uint64_t>&self.shared,
                       <uint64_t>&self.scratch):
            PyMem_Free((<Buffer*><uint64_t>buffer).data)

    cdef int share(self, bytes table, object xid, int64_t lsn, int64_t commit_ms) except -1:
        """What a transaction's changes have in common."""
        cdef Buffer* shared = &self.shared
        shared.size = 0
        put_bytes(shared, self.head)
        put_number(shared, commit_ms)
        put_bytes(shared, table)
        if xid is None:
            put(shared, "null", 4)
        else:
            put_number(shared, xid)
        put(shared, ",\"lsn\":", 7)
        put_number(shared, lsn)
        put(shared, ",\"commit_lsn\":", 14)
        put_number(shared, lsn)
        put(shared, ",\"ordinal\":", 11)
        self.shared_lsn = lsn
        return 0

    cdef int share_read(self, int64_t lsn, int64_t commit_us) except -1:
        """What the rows of a snapshot have in common."""
        self.share(self.read, None, lsn, commit_us // 1000)
        self.shared_lsn = -1
        return 0

    cdef int end(self, int64_t ordinal, char op, int64_t ts_ms) except -1:
        cdef Buffer* out = &self.out
        put(out, self.shared.data, self.shared.size)
        put_number(out, ordinal)
        put(out, "},\"op\":\"", 8)
        put_char(out, op)
        put(out, "\",\"ts_ms\":", 10)
        put_number(out, ts_ms)
        return put_char(out, c'}')


cdef class Encoded:
    """What a call gave: records, their bytes and checksum, and how far it came."""

    cdef public list records
    cdef public int64_t size
    cdef public uint64_t checksum
    cdef public Py_ssize_t taken
    cdef public int64_t reached
    cdef public int64_t committed_lsn
    cdef public int64_t source_ts_us
    cdef public int64_t behind_us

    def __cinit__(self):
        self.records = []

    def add_left(self, record):
        """A record that Python has made of what was not plain."""
        self.records.append(record)
        self.size += len(record[2]) + len(record[3] or b"")
        self.checksum += checksum_of([record])

    cdef int add(self, CompiledTable table, Buffer* key, bint tombstone, int64_t lsn, int64_t ordinal) except -1:
        """A record of `key` and what `table.out` holds, or its tombstone."""
        cdef uint32_t key_crc = crc32(<const uint8_t*>key.data, key.size)
        cdef uint32_t value_crc = 0
        cdef object value = None
        cdef object position = None
        if tombstone:
            position = f"{lsn}:{ordinal}"
        else:
            value = PyBytes_FromStringAndSize(table.out.data, table.out.size)
            value_crc = crc32(<const uint8_t*>table.out.data, table.out.size)
            self.size += table.out.size
        self.size += key.size
        self.checksum += (<uint64_t>key_crc << 32) | value_crc
        record = PyType_GenericAlloc(<PyTypeObject*>_Record, 5)
        key_bytes = PyBytes_FromStringAndSize(key.data, key.size)
        partition = key_crc % table.partitions
        for_tuple(record, 0, table.topic)
        for_tuple(record, 1, partition)
        for_tuple(record, 2, key_bytes)
        for_tuple(record, 3, value)
        for_tuple(record, 4, position)
        self.records.append(record)
        return 0


cdef inline void for_tuple(object record, Py_ssize_t at, object item) noexcept:
    Py_INCREF(item)
    PyTuple_SET_ITEM(record, at, item)
