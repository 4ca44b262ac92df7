"""Metadata of materializations: numbers, tables and plots on Dagster's pages."""
