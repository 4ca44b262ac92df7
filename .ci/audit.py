"""Compare the locked packages with a dump of advisories in the OSV format. Nothing is downloaded.

Usage: python .ci/audit.py requirements.lock <dump>

The dump is a JSON file (one advisory, a list, or one a line), a zip archive of JSON files, as databases of advisories publish it
for an ecosystem, or a folder of such files. The exit code is 0 without findings, 1 with findings, 2 where the audit was not run.
"""

import json
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

CLEAN, VULNERABLE, NOT_RUN = 0, 1, 2
ECOSYSTEM = "PyPI"


class NotRun(Exception):
    """The audit says nothing: a file is missing, or is not what it should be."""


@dataclass(frozen=True)
class Finding:
    """Advisory that names a locked version."""

    package: str
    version: Version
    advisory: str
    summary: str
    fixed: Sequence[str]


def main(arguments: list[str]) -> int:
    """Print findings and return the exit code."""
    lock, dump = (Path(argument) if argument else None for argument in (*arguments, "", "")[:2])
    try:
        if lock is None or dump is None:
            raise NotRun("no advisories: give the path of a dump in the OSV format, `make audit ADVISORIES=path`")
        pins = locked(lock)
        advisories = [each for each in read_advisories(dump) if "withdrawn" not in each]
        about = [each for each in advisories if any(is_python(affected) for affected in each.get("affected", []))]
        if not about:
            raise NotRun(f"{dump}: holds no advisory about packages of {ECOSYSTEM}")
        findings = sorted(findings_of(pins, about), key=lambda found: (found.package, found.advisory))
    except NotRun as error:
        sys.stderr.write(f"audit: not run: {error}\n")
        return NOT_RUN
    for found in findings:
        remedy = f"fixed in {', '.join(found.fixed)}" if found.fixed else "no fixed version"
        sys.stdout.write(f"{found.package} {found.version}: {found.advisory}: {found.summary} ({remedy})\n")
    sys.stdout.write(f"audit: {len(pins)} packages, {len(about)} advisories, {len(findings)} findings\n")
    return VULNERABLE if findings else CLEAN


def locked(path: Path) -> dict[str, Version]:
    """Versions by name. Raises ``NotRun`` for an entry without an exact version or without a hash."""
    if not path.is_file():
        raise NotRun(f"{path}: no such file; `make lock` writes it")
    pins = {}
    for line in path.read_text().replace("\\\n", " ").splitlines():
        text, *hashes = line.partition("#")[0].strip().split(" --hash=")
        if not text:
            continue
        try:
            requirement = Requirement(text.strip())
            [pin] = requirement.specifier
            exact = pin.operator == "=="
        except (InvalidRequirement, ValueError):
            exact = False
        if not exact or not hashes:
            raise NotRun(f"{path}: {text.strip()!r} is not locked: expected name==version with hashes")
        pins[canonicalize_name(requirement.name)] = Version(pin.version)
    if not pins:
        raise NotRun(f"{path}: locks nothing")
    return pins


def read_advisories(dump: Path) -> Iterator[Mapping[str, Any]]:
    """All advisories of a dump. Raises ``NotRun`` for one that cannot be read."""
    try:
        for name, text in _texts(dump):
            yield from _parsed(name, text)
    except (OSError, zipfile.BadZipFile, UnicodeDecodeError) as error:
        raise NotRun(f"{dump}: cannot be read: {error}") from error


def _texts(dump: Path) -> Iterator[tuple[str, str]]:
    if dump.is_dir():
        yield from ((str(path), path.read_text()) for path in sorted(dump.rglob("*.json")))
    elif zipfile.is_zipfile(dump):
        with zipfile.ZipFile(dump) as archive:
            yield from ((name, archive.read(name).decode()) for name in archive.namelist() if name.endswith(".json"))
    else:
        yield str(dump), dump.read_text()


def _parsed(name: str, text: str) -> Iterator[Mapping[str, Any]]:
    try:
        content = json.loads(text)
    except ValueError:
        try:
            content = [json.loads(line) for line in text.splitlines() if line.strip()]
        except ValueError as error:
            raise NotRun(f"{name}: is no JSON: {error}") from error
    for advisory in content if isinstance(content, list) else [content]:
        if not isinstance(advisory, dict) or "id" not in advisory:
            raise NotRun(f"{name}: is no advisory in the OSV format: it has no id")
        yield advisory


def findings_of(pins: Mapping[str, Version], advisories: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    """Advisories about locked versions."""
    for advisory in advisories:
        try:
            yield from _findings(pins, advisory)
        except (KeyError, TypeError, AttributeError) as error:
            raise NotRun(f"{advisory['id']}: is no advisory in the OSV format: {error!r}") from error


def _findings(pins: Mapping[str, Version], advisory: Mapping[str, Any]) -> Iterator[Finding]:
    for affected in advisory.get("affected", []):
        name = canonicalize_name(affected.get("package", {}).get("name", ""))
        if is_python(affected) and name in pins and is_affected(pins[name], affected):
            names = " = ".join([advisory["id"], *advisory.get("aliases", [])])
            fixed = [event["fixed"] for events in _ranges(affected) for event in events if "fixed" in event]
            yield Finding(name, pins[name], names, advisory.get("summary", "no summary"), fixed)


def is_python(affected: Mapping[str, Any]) -> bool:
    """True for a package of Python's index."""
    return str(affected.get("package", {}).get("ecosystem", "")).partition(":")[0] == ECOSYSTEM


def is_affected(version: Version, affected: Mapping[str, Any]) -> bool:
    """True for a listed version, or one inside a range. A version that cannot be compared counts as affected.

    Advisories do not name builds: 2.9.0+cpu is as affected as 2.9.0.
    """
    version = Version(version.public)
    try:
        listed = {Version(text) for text in affected.get("versions", []) if _is_version(text)}
        return version in listed or any(_inside(version, events) for events in _ranges(affected))
    except InvalidVersion:
        return True


def _ranges(affected: Mapping[str, Any]) -> Iterator[Sequence[Mapping[str, str]]]:
    return (each["events"] for each in affected.get("ranges", []) if each.get("type") in ("ECOSYSTEM", "SEMVER"))


def _is_version(text: str) -> bool:
    try:
        Version(text)
    except InvalidVersion:
        return False
    return True


def _inside(version: Version, events: Sequence[Mapping[str, str]]) -> bool:
    """Walk through the events in the order of their versions, up to this one."""
    inside = False
    for kind, at in sorted(((kind, at) for event in events for kind, at in event.items()), key=lambda each: _place(each[1])):
        if kind == "introduced" and version >= _place(at):
            inside = True
        elif (kind == "fixed" and version >= _place(at)) or (kind == "last_affected" and version > _place(at)):
            inside = False
    return inside


def _place(text: str) -> Version:
    # "0" stands for the version before all others.
    return Version("0.dev0") if text == "0" else Version(text)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
