"""Intervals of sample time that models are scored on: one generator per kind, and the intervals of a pipeline."""
