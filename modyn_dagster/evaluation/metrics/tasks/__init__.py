"""Metrics of tasks of their own: classes with an order, quantiles, several labels."""
