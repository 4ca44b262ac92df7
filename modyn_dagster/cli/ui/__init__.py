"""The command ``modyn-dagster ui``: its services, their processes, and the lock that keeps it single."""
