"""Refusals of training settings that do not fit a dataset. Imports no torch."""
