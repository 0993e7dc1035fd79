"""Queries kept up to date: jobs.upkeep's SQL, run on Spark over the Delta tables of one batch."""
