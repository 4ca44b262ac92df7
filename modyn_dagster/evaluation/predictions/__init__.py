"""Predictions of models: fixed blocks, forward passes over them, and prediction files. A model predicts a sample once."""
