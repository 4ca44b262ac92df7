"""Refusals of pipelines that do not fit their dataset."""
