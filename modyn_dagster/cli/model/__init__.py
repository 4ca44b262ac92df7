"""The command group ``modyn-dagster model``."""
