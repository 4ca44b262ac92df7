"""Data-centric continuous training on Dagster: when to retrain, on which samples, and how good each choice is."""

__version__ = "0.1.0"
