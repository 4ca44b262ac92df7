# Build stage of the image: modyn-dagster with its extras dagster, mlflow and report, and pinned dependencies, in a virtual environment. Run in the source folder.
# Usage: sh deploy/image/build.sh <folder of the environment> [further extras, separated by commas]
# PYTHON names the interpreter, which must be at the same place in the final image; pip's settings (PIP_INDEX_URL, ...) count.
set -eu
target=$1
extras=${2:-}
python=${PYTHON:-python3.11}

sh .ci/requirements.sh "$python"
"$python" -m venv "$target"
bin=$target/bin
"$bin/python" .ci/install.py -c constraints.txt setuptools wheel Cython numpy
# Not in place, as in a checkout: the image has no source folder.
"$bin/python" -m pip --disable-pip-version-check install -qq --no-deps --no-build-isolation .
"$bin/python" .ci/install.py -c constraints.txt --extras "core,dagster,mlflow,report${extras:+,$extras}"

# Only the build needs these; an image that installs nothing has no use for pip either.
for package in uv Cython wheel pip; do
    "$bin/python" -m pip --disable-pip-version-check uninstall -qq -y "$package" 2>/dev/null || true
done
