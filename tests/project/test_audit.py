"""The audit of dependencies: the lock names what is pinned, advisories are found by version, and silence is no success."""

import json
import runpy
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from tests.project.test_dependencies import pins

ROOT = Path(__file__).parents[2]
AUDIT = runpy.run_path(str(ROOT / ".ci" / "audit.py"))
LOCK = "Some-Package==1.5 \\\n    --hash=sha256:00 \\\n    --hash=sha256:11\nother==2.0 --hash=sha256:22\n"
VERSIONS = st.tuples(st.integers(0, 4), st.integers(0, 4)).map(lambda parts: f"{parts[0]}.{parts[1]}")


def advisory(events: Sequence[Mapping[str, str]] = (), versions: Sequence[str] = (), **fields: Any) -> dict[str, Any]:
    package = {"ecosystem": "PyPI", "name": "some_package"}
    affected = {"package": package, "versions": list(versions), "ranges": [{"type": "ECOSYSTEM", "events": list(events)}]}
    return {"id": "X-1", "aliases": ["CVE-1"], "summary": "bad", "affected": [affected]} | fields


def audit(folder: Path, content: Any, lock: str = LOCK) -> subprocess.CompletedProcess[str]:
    (folder / "lock").write_text(lock)
    (folder / "dump.json").write_text(content if isinstance(content, str) else json.dumps(content))
    return run(folder / "lock", folder / "dump.json")


def run(*arguments: Path | str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ".ci/audit.py", *map(str, arguments)]
    return subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT, timeout=60)


def test_the_lock_has_the_pins_and_no_address() -> None:
    assert AUDIT["locked"](ROOT / "requirements.lock") == pins()
    assert "://" not in (ROOT / "requirements.lock").read_text()


def test_without_advisories_the_audit_is_not_run(tmp_path: Path) -> None:
    for result in (run("requirements.lock", ""), run("requirements.lock"), run("requirements.lock", tmp_path / "none")):
        assert result.returncode == 2
        assert "audit: not run: " in result.stderr
    assert "ADVISORIES=path" in run("requirements.lock", "").stderr


@pytest.mark.parametrize(
    "content",
    [
        "",
        "no JSON",
        "[]",
        "[1]",
        '[{"id": "X", "affected": [{"package": {"ecosystem": "npm"}}]}]',
        '[{"id": "X", "affected": [{"package": {"ecosystem": "PyPI", "name": "other"}, "ranges": [{"type": "ECOSYSTEM"}]}]}]',
        '[{"id": "X", "affected": [{"package": {"ecosystem": "PyPI", "name": "other"}, "ranges": 1}]}]',
    ],
)
def test_a_dump_that_says_nothing_is_no_success(tmp_path: Path, content: str) -> None:
    result = audit(tmp_path, content)
    assert (result.returncode, result.stdout) == (2, "")


@pytest.mark.parametrize("lock", ["some-package==1.5\n", "some-package>=1 --hash=sha256:00\n", ""])
def test_a_lock_without_hashes_or_exact_versions_is_no_success(tmp_path: Path, lock: str) -> None:
    assert audit(tmp_path, advisory(versions=["1"]), lock).returncode == 2


def test_a_finding_names_version_advisory_and_fix(tmp_path: Path) -> None:
    result = audit(tmp_path, [advisory([{"introduced": "0"}, {"fixed": "1.6"}])])
    assert result.returncode == 1
    assert "some-package 1.5: X-1 = CVE-1: bad (fixed in 1.6)" in result.stdout


@pytest.mark.parametrize(
    "content",
    [
        advisory([{"introduced": "1.6"}]),
        advisory([{"introduced": "0"}, {"last_affected": "1.4"}]),
        advisory(versions=["1.5"], withdrawn="2026-01-01T00:00:00Z") | {"id": "W"},
        advisory(versions=["1.4"]),
    ],
)
def test_other_versions_and_withdrawn_advisories_are_no_findings(tmp_path: Path, content: dict[str, Any]) -> None:
    result = audit(tmp_path, [content, advisory(versions=["9"])])
    assert result.returncode == 0, result.stdout
    assert "2 packages" in result.stdout


def test_a_build_is_as_affected_as_its_version(tmp_path: Path) -> None:
    lock = LOCK.replace("1.5", "1.5+cpu")
    for content in (advisory([{"introduced": "0"}, {"last_affected": "1.5"}]), advisory(versions=["1.5"])):
        assert audit(tmp_path, [content], lock).returncode == 1


def test_a_dump_may_be_an_archive_a_folder_or_have_an_advisory_a_line(tmp_path: Path) -> None:
    found = advisory(versions=["1.5.0"])
    (tmp_path / "lock").write_text(LOCK)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "X-1.json").write_text(json.dumps(found))
    (tmp_path / "lines").write_text(f"{json.dumps(found)}\n{json.dumps(found)}\n")
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.writestr("X-1.json", json.dumps(found))
    for dump in ("folder", "lines", "all.zip"):
        assert run(tmp_path / "lock", tmp_path / dump).returncode == 1


@given(st.lists(VERSIONS, min_size=1, max_size=6, unique=True), VERSIONS, st.booleans())
def test_ranges_hold_what_lies_between_their_events(bounds: list[str], version: str, closed: bool) -> None:
    """Introduced and fixed (or last affected) take turns, in any order in the file."""
    ordered = sorted(bounds, key=Version)
    end = "last_affected" if closed else "fixed"
    events = [{"introduced" if i % 2 == 0 else end: bound} for i, bound in enumerate(ordered)]
    inside = False
    for first, last in zip(ordered[::2], [*ordered[1::2], None], strict=False):
        below = last is None or Version(version) < Version(last) or (closed and Version(version) == Version(last))
        inside |= Version(first) <= Version(version) and below
    assert AUDIT["is_affected"](Version(version), advisory(events[::-1])["affected"][0]) == inside
