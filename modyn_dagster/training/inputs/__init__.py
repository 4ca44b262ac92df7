"""Batches of a model's inputs: samples read, parsed, transformed, cached, and copied to the device."""
