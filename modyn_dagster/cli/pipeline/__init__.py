"""The command group ``modyn-dagster pipeline``."""
