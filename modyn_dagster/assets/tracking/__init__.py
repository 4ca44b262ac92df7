"""MLflow beside Dagster: at once, and behind a replay."""
