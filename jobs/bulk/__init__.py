"""Large ranges of a topic read in this process: librdkafka reads, Arrow parses, and Spark has no part in it."""
