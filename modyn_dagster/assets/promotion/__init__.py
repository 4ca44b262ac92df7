"""The champion of a pipeline in Dagster: its asset with the changes, the check with the test, and the job for people."""
