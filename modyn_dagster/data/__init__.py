"""The read side of datasets: samples by key, their split and labels, and what a pipeline sees of them at one moment."""
