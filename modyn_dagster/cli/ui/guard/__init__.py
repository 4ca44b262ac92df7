"""The guard of Dagster's and MLflow's pages: an ASGI middleware inside the processes of both servers."""
