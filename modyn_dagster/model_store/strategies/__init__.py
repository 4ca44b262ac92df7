"""Strategies of storing a model: settings, adaptive choice, plan of the tensors, encoding, and writing."""
