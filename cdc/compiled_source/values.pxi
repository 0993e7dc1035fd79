# Values as Postgres prints them into JSON: the compiled half of cdc.values and cdc.rows.
# Out: the bytes that Python would write, or LEAVE for whatever is not plain.

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
