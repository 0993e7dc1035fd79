"""How the commands `prove` and `rebuild` talk to the running apply process: records on the pipeline's control topic."""

from jobs.control.client import ControlClient
from jobs.control.group import apply_owner
from jobs.control.halt import Run, RunTo, Stand, Step
from jobs.control.kept import Proved
from jobs.control.proved import newest_proofs, publish_proofs
from jobs.control.records import Answer, Kind, Request, State
from jobs.control.server import ControlServer

__all__ = [
    "Answer",
    "ControlClient",
    "ControlServer",
    "Kind",
    "Proved",
    "Request",
    "Run",
    "RunTo",
    "Stand",
    "State",
    "Step",
    "apply_owner",
    "newest_proofs",
    "publish_proofs",
]
