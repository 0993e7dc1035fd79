"""Tasks done, asked while and after the jobs run."""

from __future__ import annotations

import threading

from pyspark.sql import SparkSession

from jobs.spark_progress import job_group, tasks_done


def test_an_unknown_group_has_done_nothing(spark: SparkSession):
    assert tasks_done(spark, "nobody's").share == 0


def test_a_group_counts_the_jobs_of_its_thread_alone(spark: SparkSession):
    def elsewhere() -> None:
        spark.range(0, 10, 1, 7).rdd.count()

    with job_group(spark, "rebuild v"):
        thread = threading.Thread(target=elsewhere)
        spark.range(0, 10, 1, 3).collect()
        thread.start()
        thread.join()
    spark.range(0, 10, 1, 5).collect()
    assert tasks_done(spark, "rebuild v").share == 1
    assert tasks_done(spark, "rebuild v").known == 3
