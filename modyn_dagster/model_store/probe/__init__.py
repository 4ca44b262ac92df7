"""Probe of reproducibility: hashes of every layer in two runs of a model, and the first difference.

Source: the probe of MMlib (Strassenburg et al., EDBT 2022, section 4.3), with an entry per call of a layer, so that a module used
twice has two.
"""

from modyn_dagster.model_store.probe.recording import probe, summarise
from modyn_dagster.model_store.probe.report import Call, Difference, Loss, Report, Summary, compare

__all__ = ["Call", "Difference", "Loss", "Report", "Summary", "compare", "probe", "summarise"]
