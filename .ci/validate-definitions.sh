# Whether the code location loads, on an instance of its own: that of `dagster.yaml` would want a running Postgres.
# Usage: validate-definitions.sh <dagster>
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
echo 'telemetry: {enabled: false}' >"$scratch/dagster.yaml"
DAGSTER_HOME=$scratch "$1" definitions validate
