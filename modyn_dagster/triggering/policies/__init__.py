"""Triggering policies: amount, time, drift, performance, detector, cost."""
