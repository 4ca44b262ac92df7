#!/bin/sh
# Dagster's webserver behind the guard, with the options of `dagster-webserver`.
exec "$(dirname "$0")/python" -P -m modyn_dagster.cli.ui.guard.dagster_server "$@"
