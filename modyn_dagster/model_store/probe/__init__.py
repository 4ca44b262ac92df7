"""Probe of reproducibility: every layer of a model hashed in two runs, and the first difference.

After the probe of MMlib (EDBT 2022, section 4.3), with an entry per call of a layer, so that a module used twice keeps both.
"""

from modyn_dagster.model_store.probe.recording import probe, summarise
from modyn_dagster.model_store.probe.report import Call, Difference, Loss, Report, Summary, compare

__all__ = ["Call", "Difference", "Loss", "Report", "Summary", "compare", "probe", "summarise"]
