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


def ends_of_each(list records):
    """cdc.sending.ends_of_each."""
    cdef dict found = {}
    cdef Py_ssize_t first[PARTITIONS_MAX]
    cdef Py_ssize_t last[PARTITIONS_MAX]
    cdef Py_ssize_t at
    cdef Py_ssize_t known = 0  # partitions of the topic at hand
    cdef Py_ssize_t partition
    cdef object topic = None
    for at in range(PyList_GET_SIZE(records)):
        record = <object>PyList_GET_ITEM(records, at)
        name = <object>PyTuple_GET_ITEM(record, 0)
        if name is not topic:
            note_ends(found, topic, first, last, known)
            topic, known = name, 0
        partition = <object>PyTuple_GET_ITEM(record, 1)
        if partition >= PARTITIONS_MAX:
            found[name, partition] = (found.get((name, partition), (at,))[0], at)
            continue
        while known <= partition:
            first[known] = -1
            known += 1
        if first[partition] < 0:
            first[partition] = at
        last[partition] = at
    note_ends(found, topic, first, last, known)
    return found


cdef int note_ends(dict found, object topic, Py_ssize_t* first, Py_ssize_t* last, Py_ssize_t known) except -1:
    cdef Py_ssize_t partition
    for partition in range(known):
        if first[partition] >= 0:
            before = found.get((topic, partition))
            found[topic, partition] = (first[partition] if before is None else before[0], last[partition])
    return 0


# What librdkafka's header declares.
ctypedef struct Message:
    int err
    void* topic
    int32_t partition
    const void* payload
    size_t size
    const void* key
    size_t key_size
    int64_t offset
    void* opaque

ctypedef union First:
    const void* pointer
    int32_t number

ctypedef struct Argument:
    int kind
    First first
    const void* second
    Py_ssize_t third
    char room[40]

ctypedef int (*ProduceBatch)(void* topic, int32_t partition, int flags, Message* messages, int count) noexcept nogil
ctypedef void* (*TopicNew)(void* client, const char* name, void* options) noexcept nogil
ctypedef void (*TopicDestroy)(void* topic) noexcept nogil
ctypedef int (*QueueLength)(void* client) noexcept nogil
ctypedef void* (*ProduceArguments)(void* client, const Argument* arguments, size_t count) noexcept nogil
ctypedef int (*ErrorCode)(void* error) noexcept nogil
ctypedef void (*ErrorDestroy)(void* error) noexcept nogil

cdef enum:
    MESSAGES_AT_ONCE = 1024
    COPIED = 2
    PARTITIONS_MAX = 1024
    TOPIC_ARGUMENT = 2
    PARTITION_ARGUMENT = 3
    VALUE_ARGUMENT = 4
    KEY_ARGUMENT = 5
    FLAGS_ARGUMENT = 7
    HEADER_ARGUMENT = 9


cdef class Sender:
    """Records into a producer of confluent-kafka's, many at a time and without the interpreter's lock.

    `client` is its rd_kafka_t, `functions` say where librdkafka's lie, and `header` is for a record's position.
    """

    cdef object producer
    cdef object refused
    cdef bytes header
    cdef void* client
    cdef ProduceBatch produce_batch
    cdef ProduceArguments produce_arguments
    cdef TopicNew topic_new
    cdef TopicDestroy topic_destroy
    cdef QueueLength queue_length
    cdef ErrorCode error_code
    cdef ErrorDestroy error_destroy
    cdef dict topics
    cdef Message gathered[MESSAGES_AT_ONCE]
    cdef Message sorted[MESSAGES_AT_ONCE]
    cdef int32_t touched[MESSAGES_AT_ONCE]
    cdef int wanted[PARTITIONS_MAX]
    cdef int ends[PARTITIONS_MAX]

    def __cinit__(self, producer, uint64_t client, functions, header, refused):
        self.producer = producer  # must not end before its topics
        self.client = <void*>client
        self.header = header
        self.refused = refused
        self.produce_batch = <ProduceBatch><uint64_t>functions["rd_kafka_produce_batch"]
        self.produce_arguments = <ProduceArguments><uint64_t>functions["rd_kafka_produceva"]
        self.topic_new = <TopicNew><uint64_t>functions["rd_kafka_topic_new"]
        self.topic_destroy = <TopicDestroy><uint64_t>functions["rd_kafka_topic_destroy"]
        self.queue_length = <QueueLength><uint64_t>functions["rd_kafka_outq_len"]
        self.error_code = <ErrorCode><uint64_t>functions["rd_kafka_error_code"]
        self.error_destroy = <ErrorDestroy><uint64_t>functions["rd_kafka_error_destroy"]
        self.topics = {}

    def __dealloc__(self):
        for topic in self.topics.values():
            self.topic_destroy(<void*><uint64_t>topic)

    def send(
        self,
        list records,
        Py_ssize_t at,
        dict counts,
        int64_t held_bytes,
        int queue_max,
        int64_t held_bytes_max,
        int64_t large_bytes,
    ):
        """Produce `records[at:]` up to the first of its partition, a large one, one too many or with too many bytes.
        Counts those that were sent; returns where it stopped, and the bytes of values that are held then."""
        cdef int count, number, refused
        cdef void* topic
        cdef list of_topic
        while at < PyList_GET_SIZE(records):
            record = <object>PyList_GET_ITEM(records, at)
            name = <object>PyTuple_GET_ITEM(record, 0)
            if name not in counts:
                break
            of_topic = counts[name]
            count = self.gather(records, at, of_topic, held_bytes_max - held_bytes, large_bytes)
            if count == 0 or self.queue_length(self.client) + count > queue_max:
                break
            topic = self.topic(name)
            position = <object>PyTuple_GET_ITEM(record, 4)
            if position is None:
                with nogil:
                    refused = self.produce(topic, count)
            else:
                refused = self.produce_positioned(topic, position.encode())
            if refused:
                raise self.refused(refused)
            for number in range(count):
                held_bytes += <int64_t>self.gathered[number].size
                of_topic[self.gathered[number].partition] += 1
            at += count
        return at, held_bytes

    cdef int gather(self, list records, Py_ssize_t at, list of_topic, int64_t room, int64_t large_bytes) except -1:
        """The next messages of one topic, which point into the records; one that has a position comes alone."""
        cdef int count = 0
        cdef Py_ssize_t partitions = min(PyList_GET_SIZE(of_topic), PARTITIONS_MAX)
        cdef Py_ssize_t partition
        cdef Message* message
        name = <object>PyTuple_GET_ITEM(<object>PyList_GET_ITEM(records, at), 0)
        while count < MESSAGES_AT_ONCE and at + count < PyList_GET_SIZE(records):
            record = <object>PyList_GET_ITEM(records, at + count)
            position = <object>PyTuple_GET_ITEM(record, 4)
            if count and (position is not None or <object>PyTuple_GET_ITEM(record, 0) != name):
                break
            partition = <object>PyTuple_GET_ITEM(record, 1)
            if partition >= partitions or not <object>PyList_GET_ITEM(of_topic, partition):
                break
            message = &self.gathered[count]
            message.err = 0
            message.partition = <int32_t>partition
            key = <object>PyTuple_GET_ITEM(record, 2)
            message.key = PyBytes_AS_STRING(key)
            message.key_size = PyBytes_GET_SIZE(key)
            value = <object>PyTuple_GET_ITEM(record, 3)
            message.payload = NULL if value is None else PyBytes_AS_STRING(value)
            message.size = 0 if value is None else PyBytes_GET_SIZE(value)
            room -= <int64_t>message.size
            if room < 0 or <int64_t>message.size >= large_bytes:
                break
            count += 1
            if position is not None:
                break
        return count

    cdef int produce(self, void* topic, int count) noexcept nogil:
        """All that were gathered; the error of the first that is not taken, or 0.

        Partition by partition: librdkafka's call for several at once adds even one that is not known yet to the
        transaction, which then never ends.
        """
        cdef int partitions = 0
        cdef int start = 0
        cdef int error = 0
        cdef int number, of_partition
        cdef int32_t partition
        for number in range(count):
            partition = self.gathered[number].partition
            if self.wanted[partition] == 0:
                self.touched[partitions] = partition
                partitions += 1
            self.wanted[partition] += 1
        for number in range(partitions):
            partition = self.touched[number]
            self.ends[partition] = start
            start += self.wanted[partition]
        for number in range(count):
            partition = self.gathered[number].partition
            self.sorted[self.ends[partition]] = self.gathered[number]
            self.ends[partition] += 1
        for number in range(partitions):
            partition = self.touched[number]
            of_partition = self.wanted[partition]
            self.wanted[partition] = 0
            start = self.ends[partition] - of_partition
            if error == 0 and self.produce_batch(topic, partition, COPIED, &self.sorted[start], of_partition) < of_partition:
                error = first_error(&self.sorted[start], of_partition)
        return error

    cdef int produce_positioned(self, void* topic, bytes position) except -1:
        """The one that was gathered, with its header; its error, or 0."""
        cdef Message* message = &self.gathered[0]
        cdef Argument arguments[6]
        cdef void* error
        cdef int code
        arguments[0].kind = TOPIC_ARGUMENT
        arguments[0].first.pointer = topic
        arguments[1].kind = PARTITION_ARGUMENT
        arguments[1].first.number = message.partition
        arguments[2].kind = VALUE_ARGUMENT
        arguments[2].first.pointer = message.payload
        arguments[2].second = <const void*>message.size
        arguments[3].kind = KEY_ARGUMENT
        arguments[3].first.pointer = message.key
        arguments[3].second = <const void*>message.key_size
        arguments[4].kind = FLAGS_ARGUMENT
        arguments[4].first.number = COPIED
        arguments[5].kind = HEADER_ARGUMENT
        arguments[5].first.pointer = PyBytes_AS_STRING(self.header)
        arguments[5].second = PyBytes_AS_STRING(position)
        arguments[5].third = PyBytes_GET_SIZE(position)
        error = self.produce_arguments(self.client, arguments, 6)
        if error == NULL:
            return 0
        code = self.error_code(error)
        self.error_destroy(error)
        return code

    cdef void* topic(self, object name) except NULL:
        cdef bytes encoded
        cdef void* made
        known = self.topics.get(name)
        if known is not None:
            return <void*><uint64_t>known
        encoded = name.encode()
        made = self.topic_new(self.client, PyBytes_AS_STRING(encoded), NULL)
        if made == NULL:
            raise MemoryError
        self.topics[name] = <uint64_t>made
        return made


cdef int first_error(Message* messages, int count) noexcept nogil:
    cdef int number
    for number in range(count):
        if messages[number].err:
            return messages[number].err
    return 0
