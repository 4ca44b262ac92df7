"""Removal of pipelines and datasets by name: plan, commit, and completion of what a kill interrupted."""
