"""The command group ``modyn-dagster dataset``."""
