"""Install packages with uv where the index has it, else with pip. Arguments are those of ``pip install``; pip's settings count.

Usage: <python of the virtual environment> .ci/install.py -c constraints.txt <requirement>...
       <python of the virtual environment> .ci/install.py -c constraints.txt --extras test,drift-alibi,drift-evidently,lint

With ``--extras`` the requirements of these extras of the installed project are meant, with ``core`` its own: the project itself
is not built again.
"""

import ast
import os
import re
import subprocess
import sys
from importlib.metadata import requires
from pathlib import Path

#: Settings of pip, and the variables that tell uv the same.
SETTINGS = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "cert": "SSL_CERT_FILE",
}
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]
UV = Path(sys.executable).with_name("uv")


def main(arguments: list[str]) -> int:
    """Install, and return the exit code."""
    if "--extras" in arguments:
        place = arguments.index("--extras")
        arguments[place : place + 2] = requirements_of(set(arguments[place + 1].split(",")))
    if not UV.exists():
        subprocess.run([*PIP, "install", "-qq", "-c", "constraints.txt", "uv"], check=False, capture_output=True)
    if UV.exists():
        # As pip does: the best version of all indexes. Modules are compiled when they are first imported, as to compile all
        # of them takes longer than to install them; UV_COMPILE_BYTECODE=1 does so.
        command = [UV, "pip", "install", "--quiet", "--python", sys.executable, "--index-strategy", "unsafe-best-match"]
        found = subprocess.run([*command, *arguments], check=False, env=os.environ | uv_settings())
        if found.returncode == 0:
            return 0
        sys.stderr.write("set-up: uv could not; pip tries the same\n")
    return subprocess.run([*PIP, "install", "-qq", *arguments], check=False).returncode


def uv_settings() -> dict[str, str]:
    """Variables for uv by pip's settings, unless they are set."""
    of_pip = pip_settings()
    found = {}
    for setting, variable in SETTINGS.items():
        if variable not in os.environ and (value := of_pip.get(setting)):
            found[variable] = " ".join(value.split())
    return found


def pip_settings() -> dict[str, str]:
    """Settings of pip by name, from its variables and its files, in one call: each takes half a second."""
    listed = subprocess.run([*PIP, "config", "list"], check=False, capture_output=True, text=True).stdout
    found = {}
    # Later lines come first for pip too: those of the command, then of variables.
    for origin in ("global", "install", ":env:"):
        for line in listed.splitlines():
            name, _, value = line.partition("=")
            if name.startswith(f"{origin}."):
                found[name.removeprefix(f"{origin}.")] = str(ast.literal_eval(value))
    return found


def requirements_of(extras: set[str], declared: list[str] | None = None) -> list[str]:
    """Requirements of some extras of the project, of ``core`` those of every installation, with their other markers.

    ``declared`` are all requirements of a distribution; by default those of the installed project.
    """
    found = []
    for requirement in declared if declared is not None else requires("modyn-dagster") or []:
        text, _, marker = requirement.partition(";")
        named = re.search(r"""\s*(?:\band\s+)?\bextra == ["'](.+?)["']""", marker)
        if named is None and "core" in extras:
            found.append(requirement)
        elif named is not None and named[1] in extras:
            others = marker.replace(named[0], "").strip()
            found.append(f"{text.strip()}; {others}" if others else text.strip())
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
