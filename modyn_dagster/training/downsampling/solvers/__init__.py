"""Numerical methods of the coreset policies: distances, similarities, greedy maximisation, matching pursuit."""
