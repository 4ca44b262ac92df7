"""``modyn-dagster cluster``: the nodes of a Ray cluster."""
