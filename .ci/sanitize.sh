# Runs the tests of fastpath with its extensions built for the address and undefined-behaviour sanitizers of gcc.
# A finding ends the tests at once and fails. Usage: sanitize.sh <python, absolute> [argument of pytest ...]
set -eu
python=$1
shift
cd "$(dirname "$0")/.."

compiler=${CC:-gcc}
fail() {
    echo "sanitize: $1" >&2
    exit 1
}
runtimes=
for name in asan ubsan; do
    # gcc answers with the bare name when it has no such file.
    runtime=$("$compiler" -print-file-name="lib$name.so")
    [ -e "$runtime" ] || fail "$compiler has no lib$name. Debian: apt-get install libgcc-$("$compiler" -dumpversion)-dev"
    runtimes="$runtimes${runtimes:+ }$(readlink -f "$runtime")"
done

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/modyn_dagster" "$scratch/tests"
cp -p modyn_dagster/__init__.py "$scratch/modyn_dagster/"
cp -Rp pyproject.toml README.md LICENSE fastpath "$scratch/"
cp -Rp tests/conftest.py tests/disk.py tests/examples.py tests/suites.py tests/fastpath "$scratch/tests/"
find "$scratch/fastpath" -name '*.so' -delete
# Half the time of a build at -O3, and stack traces that name the lines of the kernels.
sed 's/"-O3", "-g0"/"-O1"/' setup.py >"$scratch/setup.py"

flags="-g1 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all"
(cd "$scratch" && CC=$compiler CFLAGS=$flags LDFLAGS=$flags "$python" setup.py -q build_ext --inplace --parallel 2) \
    >"$scratch/build.log" 2>&1 || { cat "$scratch/build.log" >&2; fail "the build failed"; }
# Only fastpath is to be found here; the rest stays what is installed.
rm -r "$scratch/modyn_dagster"

# The runtimes come first in every process, Python and its children. Memory that Python pools looks in use to the sanitizer,
# so there is no pool; what the interpreter never frees is not of interest. Bus errors are ours to handle (guard.h). Reports of
# bad addresses go to files, so that those of children are not lost; gcc's other runtime knows only stderr.
run() {
    cd "$scratch"
    env LD_PRELOAD="$runtimes" PYTHONPATH="$scratch" PYTHONMALLOC=malloc HYPOTHESIS_PROFILE=few \
        ASAN_OPTIONS="detect_leaks=0:handle_sigbus=0:halt_on_error=1:exitcode=99:log_path=$scratch/finding" \
        UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1" "$python" "$@"
}
(run -c "import fastpath.kernels._gather as g; raise SystemExit(not g.__file__.startswith('$scratch'))") ||
    fail "the sanitized extensions are not the ones that are imported"
code=0
(run -m pytest -q -n 2 --capture=sys -p no:cacheprovider -p no:faulthandler tests/fastpath "$@") || code=$?
for finding in "$scratch"/finding.*; do
    [ -e "$finding" ] || continue
    cat "$finding" >&2
    code=99
done
exit "$code"
