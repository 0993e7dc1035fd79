# A buffer that grows, and numbers written into it.
# Keeps true: whoever puts something there need not know how much room is left.

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
