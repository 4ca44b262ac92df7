"""Drift metrics of optional libraries: alibi-detect, evidently."""
