"""Prove that every sink holds what Postgres answers to the view's own SQL, both at one position of the log."""

from jobs.prove.holder import ControlHolder, Holder, LocalHolder
from jobs.prove.proof import MakeSink, prove
from jobs.prove.result import Difference, Example, OnProgress, Progress, ViewProof

__all__ = [
    "ControlHolder",
    "Difference",
    "Example",
    "Holder",
    "LocalHolder",
    "MakeSink",
    "OnProgress",
    "Progress",
    "ViewProof",
    "prove",
]
