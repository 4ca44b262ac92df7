"""Deletion requests in Dagster and MLflow."""
