"""Pairs of models on the samples that both have predicted, read from the catalog and the stored predictions."""
