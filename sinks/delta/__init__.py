"""The Delta sink: one plain Delta table per view, whose commits say where it stands."""

from sinks.delta.beside import BesideDelta
from sinks.delta.sink import DeltaSink
from sinks.delta.stamp import Stamp, vouched
from sinks.delta.upkeep import Figures

__all__ = ["BesideDelta", "DeltaSink", "Figures", "Stamp", "vouched"]
