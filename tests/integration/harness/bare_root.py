"""Roots of a bare Debian, in which the scripts of the image run as in a container: nothing that they write reaches this machine.

Debian's debootstrap makes one root; each further one is an overlay over it, in a mount namespace that ends with its process.
"""

import os
import re
import runpy
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.projects.tiny import ROOT

_SECONDS: Final = 900
#: Release of the Dockerfile's base image, ``python:3.11-slim-bookworm``, and its interpreter, which Debian has too.
_BASE: Final = re.search(r"^ARG BASE=python:([\d.]+)-slim-(\w+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
assert _BASE is not None
PYTHON, RELEASE = f"python{_BASE[1]}", _BASE[2]
#: Packages of the base image. debootstrap does not look for those that a package needs by the name of a feature (distutils).
_PACKAGES: Final = ("ca-certificates", f"{PYTHON}-venv", "python3-distutils")
#: Arguments: the root, the folders below it, of the changes and of the overlay's work, places of this machine, and the script.
_ENTER: Final = """
set -eu
root=$1 base=$2 upper=$3 work=$4 places=$5
mount --make-rprivate /
mount -t overlay overlay -o "lowerdir=$base,upperdir=$upper,workdir=$work" "$root"
mount -t proc proc "$root/proc"
for folder in sys dev; do mount --rbind "/$folder" "$root/$folder"; done
for place in $places; do
    if [ -d "$place" ]; then mkdir -p "$root$place"; else mkdir -p "$root$(dirname "$place")"; touch "$root$place"; fi
    mount --bind "$place" "$root$place"
    mount -o remount,bind,ro "$root$place"
done
exec chroot "$root" /bin/sh -eu -c "$6"
"""
needs_root: Final = pytest.mark.skipif(os.geteuid() != 0, reason="a root of its own needs root")
_DEBOOTSTRAP: Final = Path("/usr/sbin/debootstrap")
needs_debootstrap: Final = pytest.mark.skipif(
    not _DEBOOTSTRAP.exists(), reason="needs a bare Debian: apt-get install debootstrap"
)


class BareRoot:
    """Root whose changes are in a folder, over a root that stays as it is."""

    def __init__(self, folder: Path, base: Path) -> None:
        self.changes, self._base = folder / "changes", base
        self._root, self._work = folder / "root", folder / "work"
        for each in (self.changes, self._root, self._work):
            each.mkdir(parents=True)

    def run(self, script: str, environment: Mapping[str, str] | None = None, *, installs: bool = False) -> str:
        """Run a script inside, as root; returns its output. One that installs packages has this machine's settings of pip."""
        settings, places = _pip() if installs else ({}, [])
        arguments = [*map(str, (self._root, self._base, self.changes, self._work)), " ".join(map(str, places)), script]
        command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", _ENTER, "sh", *arguments]
        given = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": "/root", **settings, **(environment or {})}
        done = subprocess.run(command, env=given, capture_output=True, text=True, timeout=_SECONDS, check=False)
        assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        return done.stdout


def bare_debian(folder: Path) -> Path:
    """Make a root of Debian with the packages of the image's base, from Debian's own mirror."""
    command = [str(_DEBOOTSTRAP), "--variant=minbase", f"--include={','.join(_PACKAGES)}", RELEASE, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    if done.returncode != 0:
        pytest.fail(f"debootstrap makes no root of Debian {RELEASE}; is its mirror reached? {done.stdout[-2000:]}", pytrace=False)
    for name in ("resolv.conf", "hosts"):
        shutil.copy(Path("/etc") / name, folder / "etc" / name)
    return folder


def _pip() -> tuple[Mapping[str, str], list[Path]]:
    """Variables with the settings of pip on this machine, and the files and folders that they name."""
    install = runpy.run_path(str(ROOT / ".ci" / "install.py"))
    found = {name: value for name, value in install["pip_settings"]().items() if name in install["SETTINGS"]}
    variables = {f"PIP_{name.upper().replace('-', '_')}": value for name, value in found.items()}
    others = {name: value for name, value in os.environ.items() if name.startswith(("UV_", "SSL_CERT_FILE", "HTTP", "http"))}
    places = set()
    for text in " ".join([*found.values(), others.get("SSL_CERT_FILE", "")]).split():
        # Files lie beside the pages of an index that is a folder.
        place = Path(text.removeprefix("file://")).parent if text.startswith("file://") else Path(text)
        if place.is_absolute() and place.exists():
            places.add(place)
    return variables | others, sorted(places)
