"""Queries over the derived Delta tables, all at one LSN, without Spark or a JVM."""

from jobs.query.derived import Cut
from jobs.query.run import Answer, run_query
from jobs.query.when import parse_when

__all__ = ["Answer", "Cut", "parse_when", "run_query"]
