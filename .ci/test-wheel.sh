# Uses an installed wheel from end to end, in an empty folder. Usage: test-wheel.sh <folder of the source tree>
set -eu
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
# Postgres refuses to run in folders that its own account cannot enter.
chmod 755 .
modyn-dagster init shop --template tabular
cd shop
modyn-dagster check --data
python "$1/examples/without_dagster.py" shop
