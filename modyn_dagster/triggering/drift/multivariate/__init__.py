"""Drift metrics of whole samples: MMD, energy, Fréchet, least-squares density difference, classifier."""
