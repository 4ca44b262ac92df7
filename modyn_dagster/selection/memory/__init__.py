"""Memories of a stream: bounded sets of samples for models that go on learning, updated batch by batch.

Usable without a pipeline: keys are any ``uint64`` numbers. What a memory wants to know of samples, such as their losses under
the newest model, it names by ``needs``; whoever drives it finds that out and hands it to ``update``.
"""

from modyn_dagster.selection.memory.clib import CLIB
from modyn_dagster.selection.memory.gdumb import GDumb
from modyn_dagster.selection.memory.gss import GSS
from modyn_dagster.selection.memory.memory import Memory, Needs
from modyn_dagster.selection.memory.mir import MIR

__all__ = ["CLIB", "GSS", "MIR", "GDumb", "Memory", "Needs"]
