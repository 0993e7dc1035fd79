"""Prove that every sink holds what Postgres answers to the view's own SQL, both at one position of the log."""

from jobs.prove.holder import ControlHolder, Holder, LocalHolder
from jobs.prove.mending import Mend, Mender
from jobs.prove.proof import Extras, MakeSink, prove
from jobs.prove.result import Difference, Example, Mended, OnProgress, Progress, ViewProof

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
    "ViewProof",
    "prove",
]
