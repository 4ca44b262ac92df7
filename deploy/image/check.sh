# The image as it must be, checked as its account while it is built: no compiler, no root, nothing of the program writable.
# Usage: sh check.sh <folder of the environment>
set -eu
target=$1
fail() {
    echo "image: $1" >&2
    exit 1
}

[ "$(id -u)" != 0 ] || fail "runs as root"
for program in cc gcc g++ c++ clang tcc ld as make cython pip uv; do
    ! command -v "$program" >/dev/null || fail "has $(command -v "$program"), which only the build needs"
done
for folder in "$target" "$target/bin" /etc/modyn /project; do
    [ -d "$folder" ] || fail "has no folder $folder"
    [ ! -w "$folder" ] || fail "lets its account write to $folder"
done
[ -w /state ] || fail "does not let its account write to /state"
[ "$(stat -c %a /state)" = 700 ] || fail "opens /state to other accounts"
grep -q "^    ask_code_server: true$" /etc/modyn/dagster.yaml || fail "does not ask its code location for lost runs"
grep -q guard.dagster_server "$(command -v dagster-webserver)" || fail "has a dagster-webserver without the guard"
modyn-dagster --version >/dev/null || fail "has no modyn-dagster that starts"
modyn-dagster services run --help >/dev/null || fail "cannot run its services"
# Everything native, once: a missing library shows here rather than in a run.
python -P -c 'import fastpath, fastpath.store, modyn_dagster.definitions, torch, psycopg2, mlflow, dagster_postgres' ||
    fail "cannot import what runs need"
