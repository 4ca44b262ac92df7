"""MLflow as a display of the catalog: runs, metrics, dataset inputs and registered models."""
