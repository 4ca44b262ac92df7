"""The command ``modyn-dagster services``: one server each in the foreground, for systemd, containers and several machines."""
