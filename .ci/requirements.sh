# What set-up needs of the machine, checked before anything is installed. Usage: requirements.sh <python>
python=$1

fail() {
    echo "set-up: $1" >&2
    exit 1
}

command -v "$python" >/dev/null || fail "no command $python: Python 3.11 is needed.
  Debian: apt-get install python3.11 python3.11-venv python3.11-dev; elsewhere: make PYTHON=/path/to/python3.11"
found=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
[ "$found" = 3.11 ] || fail "$python is Python $found, 3.11 is needed: make PYTHON=/path/to/python3.11"
"$python" -c 'import ensurepip, venv' 2>/dev/null \
    || fail "$python has no venv module. Debian: apt-get install python3.11-venv"
"$python" -c 'import os, sysconfig; raise SystemExit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' \
    || fail "the headers of $python are missing. Debian: apt-get install python3.11-dev"
command -v "${CC:-gcc}" >/dev/null || fail "no C compiler (${CC:-gcc}). Debian: apt-get install gcc libc6-dev"
