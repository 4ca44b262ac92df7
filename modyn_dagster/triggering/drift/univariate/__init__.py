"""Drift metrics of single columns: Kolmogorov-Smirnov, Cramér-von Mises, Wasserstein, Hellinger, Jensen-Shannon."""
