# Towards Kafka: checksums of records, and records handed to the producer.

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
