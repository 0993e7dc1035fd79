"""Prove that every sink holds what Postgres answers to the view's own SQL, both at one position of the log."""

from jobs.prove.holder import ControlHolder, Holder, LocalHolder, TimedHolder
from jobs.prove.mending import Mend, Mender
from jobs.prove.proof import prove
from jobs.prove.prover import Extras, MakeSink
from jobs.prove.result import Difference, Example, Mended, OnProgress, Progress, ViewProof, total

__all__ = [
    "ControlHolder",
    "Difference",
    "Example",
    "Extras",
    "Holder",
    "LocalHolder",
    "MakeSink",
    "Mend",
    "Mended",
    "Mender",
    "OnProgress",
    "Progress",
    "TimedHolder",
    "ViewProof",
    "prove",
    "total",
]
