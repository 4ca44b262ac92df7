"""Cells of the evaluation matrix: measured from labels, and estimated without."""
