"""Registered models of pipelines, and what stands on their versions."""
