# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Rows to Kafka records, compiled: what cdc.envelope, cdc.rowcode, cdc.values, cdc.rows and snapshot.copy_text do
in Python, for the cases that are almost all of them.

In: frames of whole transactions, or COPY's lines. Out: the same records as Python's, byte for byte. Keeps true: what is
not plain (a fault, a missing value, a message that is not a row's) is left alone, so that Python decides and explains.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.object cimport PyObject, PyTypeObject
from cpython.ref cimport Py_INCREF
from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_DecodeUTF8
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy

from cdc.changes import Record
from cdc.frames import POSTGRES_EPOCH_US

cdef extern from "Python.h":
    object PyType_GenericAlloc(PyTypeObject* type, Py_ssize_t items)
    void PyTuple_SET_ITEM(object p, Py_ssize_t at, object item)
    PyObject* PyTuple_GET_ITEM(object p, Py_ssize_t at)

cdef extern from *:
    """
    #ifndef AFTERIMAGE_SOURCE
    #define AFTERIMAGE_SOURCE "source:unknown"
    #endif
    """
    const char* AFTERIMAGE_SOURCE

SOURCE = AFTERIMAGE_SOURCE.decode()  # says which source this was built from

cdef int64_t _EPOCH_US = POSTGRES_EPOCH_US
cdef object _Record = Record
cdef tuple _UNFIT = (TypeError, ValueError, AttributeError)

# How a column's text becomes JSON; cdc.values says what each means.
cpdef enum Kind:
    PASSED = 0
    BOOLEAN = 1
    FLOAT = 2
    BINARY = 3
    TIMESTAMP = 4
    TIMESTAMPTZ = 5
    INTEGERS = 6
    TEXT = 7
    CALLED = 8

cdef enum:
    NULL_VALUE = -1
    OK = 0
    LEAVE = 1
    HEADER = 25
    COLUMNS_MAX = 1664
    LINE_HEADROOM = 8


# --- crc32 (zlib's): folded by carry-less products where the processor has them, else sixteen bytes at a time ---------

cdef extern from *:
    """
    #include <stdint.h>
    #if defined(__x86_64__) && defined(__GNUC__)
    #include <immintrin.h>

    static int crc32_can_fold(void) {
        return __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
    }

    #define FOLDS __attribute__((target("pclmul,sse4.1")))

    FOLDS static inline __m128i fold(__m128i x, __m128i by, __m128i next) {
        __m128i products = _mm_xor_si128(_mm_clmulepi64_si128(x, by, 0x00), _mm_clmulepi64_si128(x, by, 0x11));
        return _mm_xor_si128(products, next);
    }

    /* Gopal et al., "Fast CRC computation using PCLMULQDQ", reflected. `size`: at least 64, in steps of 16. */
    FOLDS static uint32_t crc32_fold(const uint8_t *data, Py_ssize_t size, uint32_t crc) {
        const __m128i by64 = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4);
        const __m128i by16 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
        const __m128i by8 = _mm_set_epi64x(0, 0x0163cd6124);
        const __m128i poly = _mm_set_epi64x(0x01f7011641, 0x01db710641);
        const __m128i low = _mm_set_epi32(0, -1, 0, -1);
        const __m128i *at = (const __m128i *)data;
        __m128i a = _mm_xor_si128(_mm_loadu_si128(at), _mm_cvtsi32_si128((int)crc));
        __m128i b = _mm_loadu_si128(at + 1), c = _mm_loadu_si128(at + 2), d = _mm_loadu_si128(at + 3);
        for (at += 4, size -= 64; size >= 64; at += 4, size -= 64) {
            a = fold(a, by64, _mm_loadu_si128(at));
            b = fold(b, by64, _mm_loadu_si128(at + 1));
            c = fold(c, by64, _mm_loadu_si128(at + 2));
            d = fold(d, by64, _mm_loadu_si128(at + 3));
        }
        a = fold(a, by16, b);
        a = fold(a, by16, c);
        a = fold(a, by16, d);
        for (; size >= 16; at++, size -= 16)
            a = fold(a, by16, _mm_loadu_si128(at));
        a = _mm_xor_si128(_mm_srli_si128(a, 8), _mm_clmulepi64_si128(a, by16, 0x10));
        a = _mm_xor_si128(_mm_srli_si128(a, 4), _mm_clmulepi64_si128(_mm_and_si128(a, low), by8, 0x00));
        b = _mm_and_si128(_mm_clmulepi64_si128(_mm_and_si128(a, low), poly, 0x10), low);
        a = _mm_xor_si128(a, _mm_clmulepi64_si128(b, poly, 0x00));
        return (uint32_t)_mm_extract_epi32(a, 1);
    }
    #else
    static int crc32_can_fold(void) { return 0; }
    static uint32_t crc32_fold(const uint8_t *data, Py_ssize_t size, uint32_t crc) { return crc; }
    #endif
    """
    bint crc32_can_fold() nogil
    uint32_t crc32_fold(const uint8_t* data, Py_ssize_t size, uint32_t crc) nogil

cdef bint _can_fold = crc32_can_fold()

cdef uint32_t _crc[16][256]

cdef void _make_crc_tables() noexcept:
    cdef uint32_t n, k, value
    for n in range(256):
        value = n
        for k in range(8):
            value = (value >> 1) ^ (0xEDB88320u if value & 1 else 0u)
        _crc[0][n] = value
    for n in range(256):
        value = _crc[0][n]
        for k in range(1, 16):
            value = (value >> 8) ^ _crc[0][value & 0xFF]
            _crc[k][n] = value

_make_crc_tables()


cdef uint32_t crc32(const uint8_t* data, Py_ssize_t size) noexcept nogil:
    cdef uint32_t crc = 0xFFFFFFFFu
    cdef uint32_t a, b, c, d
    cdef Py_ssize_t folded
    if _can_fold and size >= 64:
        folded = size & ~15
        crc = crc32_fold(data, folded, crc)
        data += folded
        size -= folded
    while size >= 16:
        a = crc ^ (data[0] | <uint32_t>data[1] << 8 | <uint32_t>data[2] << 16 | <uint32_t>data[3] << 24)
        b = data[4] | <uint32_t>data[5] << 8 | <uint32_t>data[6] << 16 | <uint32_t>data[7] << 24
        c = data[8] | <uint32_t>data[9] << 8 | <uint32_t>data[10] << 16 | <uint32_t>data[11] << 24
        d = data[12] | <uint32_t>data[13] << 8 | <uint32_t>data[14] << 16 | <uint32_t>data[15] << 24
        crc = (
            _crc[15][a & 0xFF] ^ _crc[14][(a >> 8) & 0xFF] ^ _crc[13][(a >> 16) & 0xFF] ^ _crc[12][a >> 24]
            ^ _crc[11][b & 0xFF] ^ _crc[10][(b >> 8) & 0xFF] ^ _crc[9][(b >> 16) & 0xFF] ^ _crc[8][b >> 24]
            ^ _crc[7][c & 0xFF] ^ _crc[6][(c >> 8) & 0xFF] ^ _crc[5][(c >> 16) & 0xFF] ^ _crc[4][c >> 24]
            ^ _crc[3][d & 0xFF] ^ _crc[2][(d >> 8) & 0xFF] ^ _crc[1][(d >> 16) & 0xFF] ^ _crc[0][d >> 24]
        )
        data += 16
        size -= 16
    while size > 0:
        crc = (crc >> 8) ^ _crc[0][(crc ^ data[0]) & 0xFF]
        data += 1
        size -= 1
    return crc ^ 0xFFFFFFFFu


# --- a buffer that grows ---------------------------------------------------------------------------------------------

cdef struct Buffer:
    char* data
    Py_ssize_t size
    Py_ssize_t room


cdef int grow(Buffer* buffer, Py_ssize_t more) except -1:
    cdef Py_ssize_t room = buffer.room * 2
    cdef char* data
    if room < buffer.size + more:
        room = buffer.size + more
    data = <char*>PyMem_Realloc(buffer.data, room)
    if data == NULL:
        raise MemoryError
    buffer.data = data
    buffer.room = room
    return 0


cdef inline int reserve(Buffer* buffer, Py_ssize_t more) except -1:
    if buffer.size + more > buffer.room:
        grow(buffer, more)
    return 0


cdef inline int put(Buffer* buffer, const char* data, Py_ssize_t size) except -1:
    reserve(buffer, size)
    memcpy(buffer.data + buffer.size, data, size)
    buffer.size += size
    return 0


cdef inline int put_bytes(Buffer* buffer, bytes data) except -1:
    return put(buffer, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))


cdef inline int put_char(Buffer* buffer, char value) except -1:
    reserve(buffer, 1)
    buffer.data[buffer.size] = value
    buffer.size += 1
    return 0


cdef int put_number(Buffer* buffer, int64_t value) except -1:
    cdef char digits[24]
    cdef int at = 24
    cdef uint64_t left = <uint64_t>(-value) if value < 0 else <uint64_t>value
    while True:
        at -= 1
        digits[at] = <char>(48 + left % 10)
        left //= 10
        if left == 0:
            break
    if value < 0:
        at -= 1
        digits[at] = c'-'
    return put(buffer, digits + at, 24 - at)


# --- values ----------------------------------------------------------------------------------------------------------

cdef struct Value:
    const char* data
    Py_ssize_t size  # NULL_VALUE for NULL

cdef const char* _HEX = "0123456789abcdef"
cdef const char* _BASE64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


cdef bint is_ascii(const char* data, Py_ssize_t size) noexcept nogil:
    cdef uint64_t word
    cdef Py_ssize_t at = 0
    while at + 8 <= size:
        memcpy(&word, data + at, 8)
        if word & 0x8080808080808080u:
            return False
        at += 8
    while at < size:
        if data[at] & 0x80:
            return False
        at += 1
    return True


cdef int check_utf8(const char* data, Py_ssize_t size) except -1:
    """LEAVE for what is not UTF-8."""
    if is_ascii(data, size):
        return OK
    try:
        PyUnicode_DecodeUTF8(data, size, NULL)
    except UnicodeDecodeError:
        return LEAVE
    return OK


cdef int put_text(Buffer* buffer, const char* data, Py_ssize_t size) except -1:
    """A JSON string; json.encoder.encode_basestring's escapes."""
    cdef Py_ssize_t start = 0
    cdef Py_ssize_t at
    cdef uint8_t value
    reserve(buffer, size + 2)
    put_char(buffer, c'"')
    for at in range(size):
        value = <uint8_t>data[at]
        if value >= 32 and value != 34 and value != 92:
            continue
        put(buffer, data + start, at - start)
        start = at + 1
        reserve(buffer, 6)
        put_char(buffer, 92)
        if value == 34 or value == 92:
            put_char(buffer, value)
        elif value == 10:
            put_char(buffer, c'n')
        elif value == 9:
            put_char(buffer, c't')
        elif value == 13:
            put_char(buffer, c'r')
        elif value == 8:
            put_char(buffer, c'b')
        elif value == 12:
            put_char(buffer, c'f')
        else:
            put(buffer, "u00", 3)
            put_char(buffer, _HEX[value >> 4])
            put_char(buffer, _HEX[value & 15])
    put(buffer, data + start, size - start)
    return put_char(buffer, c'"')


cdef inline int nibble(char digit) noexcept nogil:
    if 48 <= digit <= 57:
        return digit - 48
    if 97 <= digit <= 102:
        return digit - 87
    if 65 <= digit <= 70:
        return digit - 55
    return -1


cdef int put_binary(Buffer* buffer, const char* data, Py_ssize_t size) except -1:
    """bytea's hex to base64."""
    cdef Py_ssize_t at = 2
    cdef Py_ssize_t left
    cdef int high, low, count
    cdef uint32_t group
    if size < 2 or size & 1 or data[0] != 92 or data[1] != c'x':
        return LEAVE
    reserve(buffer, size + 8)
    put_char(buffer, c'"')
    while at < size:
        group = 0
        count = 0
        while count < 3 and at < size:
            high, low = nibble(data[at]), nibble(data[at + 1])
            if high < 0 or low < 0:
                return LEAVE
            group = group << 8 | <uint32_t>(high << 4 | low)
            at += 2
            count += 1
        group <<= 8 * (3 - count)
        put_char(buffer, _BASE64[group >> 18])
        put_char(buffer, _BASE64[(group >> 12) & 63])
        put_char(buffer, _BASE64[(group >> 6) & 63] if count > 1 else c'=')
        put_char(buffer, _BASE64[group & 63] if count > 2 else c'=')
    put_char(buffer, c'"')
    return OK


cdef int put_time(Buffer* buffer, const char* data, Py_ssize_t size, bint zoned) except -1:
    """Timestamps: the first space becomes a T, UTC a Z; infinity and years BC stay as they are."""
    cdef const char* space
    cdef bint is_odd
    if zoned:
        is_odd = False
        if not (size >= 3 and memcmp(data + size - 3, "+00", 3) == 0):
            is_odd = size >= 1 and data[size - 1] == c'y'
            if not is_odd and not (size >= 6 and memcmp(data + size - 6, "+00 BC", 6) == 0):
                return LEAVE
            is_odd = True
        else:
            size -= 3
    else:
        is_odd = size >= 1 and (data[size - 1] == c'y' or data[size - 1] == c'C')
    reserve(buffer, size + 3)
    put_char(buffer, c'"')
    if not is_odd:
        space = <const char*>memchr(data, c' ', size)
        if space != NULL:
            put(buffer, data, space - data)
            put_char(buffer, c'T')
            size -= space - data + 1
            data = space + 1
    put(buffer, data, size)
    if zoned and not is_odd:
        put_char(buffer, c'Z')
    put_char(buffer, c'"')
    return OK


cdef int put_integers(Buffer* buffer, const char* data, Py_ssize_t size) except -1:
    """An array of integers; with bounds it is a text."""
    cdef Py_ssize_t at = 0
    if size > 0 and data[0] == c'[':
        return put_text(buffer, data, size)
    reserve(buffer, size)
    while at < size:
        if data[at] == c'{':
            put_char(buffer, c'[')
        elif data[at] == c'}':
            put_char(buffer, c']')
        elif data[at] == c'N' and size - at >= 4 and memcmp(data + at, "NULL", 4) == 0:
            put(buffer, "null", 4)
            at += 3
        else:
            put_char(buffer, data[at])
        at += 1
    return OK


cdef int put_called(Buffer* buffer, const char* data, Py_ssize_t size, object encode) except -1:
    """What only Python knows."""
    cdef const char* out
    cdef Py_ssize_t length
    try:
        text = encode(PyUnicode_DecodeUTF8(data, size, NULL))
        if type(text) is not str:
            return LEAVE
        out = PyUnicode_AsUTF8AndSize(text, &length)
    except _UNFIT:
        return LEAVE
    return put(buffer, out, length)


cdef int put_value(Buffer* buffer, Value* value, int kind, object encode) except -1:
    """One value, which is not NULL."""
    cdef const char* data = value.data
    cdef Py_ssize_t size = value.size
    if kind == CALLED:
        return put_called(buffer, data, size, encode)
    if kind == BINARY:
        return put_binary(buffer, data, size)
    if check_utf8(data, size):
        return LEAVE
    if kind == TEXT:
        return put_text(buffer, data, size)
    if kind == PASSED:
        return put(buffer, data, size)
    if kind == BOOLEAN:
        if size == 1 and data[0] == c't':
            return put(buffer, "true", 4)
        if size == 1 and data[0] == c'f':
            return put(buffer, "false", 5)
        return LEAVE
    if kind == FLOAT:
        if size == 0 or data[size - 1] & 0x80:
            return LEAVE
        if not 48 <= data[size - 1] <= 57:
            return put_text(buffer, data, size)
        if size == 2 and data[0] == c'-' and data[1] == c'0':
            return put(buffer, "-0.0", 4)
        return put(buffer, data, size)
    if kind == INTEGERS:
        return put_integers(buffer, data, size)
    return put_time(buffer, data, size, kind == TIMESTAMPTZ)


# --- tables ----------------------------------------------------------------------------------------------------------

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


# --- the log ---------------------------------------------------------------------------------------------------------

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


# --- the snapshot ----------------------------------------------------------------------------------------------------

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


cdef class CopyRows:
    """The rows of a COPY as libpq gives them: `get` and `free` are where its PQgetCopyData and PQfreemem lie."""

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
        """As many rows as there are now; `answer` is then what libpq says in place of the next one, or positive."""
        self.at = self.held = 0
        while self.held < ROWS_AT_ONCE:
            self.answer = self.get(self.connection, &self.rows[self.held], 1)
            if self.answer <= 0:
                break
            self.sizes[self.held] = self.answer
            self.held += 1

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
        """Records added to `into` up to its limits, to a row that is not plain (then its line is the answer), or to
        where libpq has none: 0 when it must read from the network, -1 at the end, -2 after an error; else 1."""
        cdef bint left
        table.share_read(lsn, commit_us)
        while PyList_GET_SIZE(into.records) < rows_max and into.size < bytes_max:
            if self.at == self.held:
                if self.answer <= 0:
                    answer, self.answer = self.answer, 1
                    return answer
                with nogil:
                    self.fetch()
                continue
            left = put_line(table, into, self.rows[self.at], self.sizes[self.at], ts_ms)
            line = self.rows[self.at][: self.sizes[self.at]] if left else None
            self.free(self.rows[self.at])
            self.at += 1
            if left:
                return line
        return 1


# --- towards Kafka ---------------------------------------------------------------------------------------------------

def checksum_of(list records):
    """cdc.progress.checksum."""
    cdef uint64_t total = 0
    cdef bytes key, value
    cdef uint32_t value_crc
    for record in records:
        key = <object>PyTuple_GET_ITEM(record, 2)
        item = <object>PyTuple_GET_ITEM(record, 3)
        value_crc = 0
        if item is not None:
            value = item
            value_crc = crc32(<const uint8_t*>PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value))
        total += (<uint64_t>crc32(<const uint8_t*>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key)) << 32) | value_crc
    return total


def send(
    object produce, list records, Py_ssize_t at, dict counts, int64_t held_bytes, int64_t held_bytes_max
):
    """Produce `records[at:]` up to the first that needs more than that: one with a position, the first of its
    partition, one too many bytes, or one that the producer does not take now. Counts those that were sent; returns
    where it stopped, and the bytes of values that are held then."""
    cdef Py_ssize_t count = PyList_GET_SIZE(records)
    cdef int64_t size
    while at < count:
        record = <object>PyList_GET_ITEM(records, at)
        if <object>PyTuple_GET_ITEM(record, 4) is not None:
            break
        slot = (<object>PyTuple_GET_ITEM(record, 0), <object>PyTuple_GET_ITEM(record, 1))
        sent = counts.get(slot)
        value = <object>PyTuple_GET_ITEM(record, 3)
        size = 0 if value is None else len(value)
        if sent is None or held_bytes + size > held_bytes_max:
            break
        try:
            produce(
                <object>PyTuple_GET_ITEM(record, 0),
                value,
                <object>PyTuple_GET_ITEM(record, 2),
                <object>PyTuple_GET_ITEM(record, 1),
            )
        except Exception:
            break  # whoever goes on with this record meets it again
        held_bytes += size
        counts[slot] = sent + 1
        at += 1
    return at, held_bytes
