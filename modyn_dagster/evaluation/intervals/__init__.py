"""Intervals of sample time over which models are judged: one generator per kind, and the intervals of a pipeline's block."""
