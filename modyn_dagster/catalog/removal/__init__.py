"""Removal of pipelines and datasets: their rows, and the journal of what is still to be removed beside the catalog."""
