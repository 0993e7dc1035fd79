"""The embedded stack: Postgres, Kafka, OpenSearch, Valkey and Spark's jars on a machine that has only Python."""
