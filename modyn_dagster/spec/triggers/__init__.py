"""Trigger blocks: triggering policies and their decision rules, detectors and drift metrics."""
