"""Writing and verification of a report: JSON, a page for printing, the envelope of both, and the public key."""

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from modyn_dagster.catalog.datasets import DatasetRow
from modyn_dagster.catalog.removal.deletion_requests import get_request
from modyn_dagster.catalog.removal.packed_keys import unpack_keys
from modyn_dagster.errors import ConfigError, ReportChanged, StorageError
from modyn_dagster.pipeline.operate.deletion.document import DeletionDocument
from modyn_dagster.pipeline.operate.deletion.report.content import FORMAT, report_content
from modyn_dagster.pipeline.operate.deletion.report.fingerprints import Fingerprints, fingerprints_path, named_fingerprints
from modyn_dagster.pipeline.operate.deletion.report.scan import Progress, Scan, scan, unseen
from modyn_dagster.pipeline.operate.deletion.report.signing import (
    key_id,
    public_pem,
    signed_envelope,
    signing_key,
    verified_subjects,
)
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.storage import atomic_write

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

REPORT: Final = "report.json"
PAGE: Final = "report.html"
ENVELOPE: Final = "report.dsse.json"
PUBLIC_KEY: Final = "public_key.pem"
#: Renders the content of a report as a page that needs nothing else.
Render = Callable[[dict[str, Any]], str]


def report_folder(home: Path, request: int) -> Path:
    """Folder of the report of a request, unless another one is named."""
    return home / "deletions" / str(request)


def write_report(
    platform: Platform, dataset: DatasetRow, request: int, folder: Path, render: Render, progress: Progress = unseen
) -> dict[str, Any]:
    """Scan, and write the report of a finished request; the envelope comes last, so a killed writer leaves no signed report.

    Returns its content.

    Raises:
        ConfigError: the request is of another dataset, or not finished.
        UnknownName: there is no such request.
        StorageError: fingerprints or key cannot be used.
        WriteFailed: a file cannot be written.
    """
    with platform.transaction() as conn:
        row = get_request(conn, request)
    if row.dataset_id != dataset.id:
        raise ConfigError("dataset delete", "--report", request, f"is a request of another dataset than {dataset.name}")
    if row.state != "finished":
        raise ConfigError(
            "dataset delete", "--report", request, f"is {row.state}; finish it first with `--request {request} --execute`"
        )
    document = DeletionDocument.model_validate(dict(row.document))
    key, path = signing_key(platform.settings.home), fingerprints_path(platform.settings.home, request, document.salt)
    fingerprints = Fingerprints.read(path)
    result = scan(platform, dataset, fingerprints, progress)
    named = {"file": path.name, "sha256": _sha256(path)}
    keys = unpack_keys(row.keys)
    content = report_content(document.model_copy(update={"request": request}), keys, fingerprints, named, result)
    content["signed_by"] = key_id(key.public_key())
    files = {REPORT: (json.dumps(content, indent=1) + "\n").encode(), PAGE: render(content).encode()}
    (folder / ENVELOPE).unlink(missing_ok=True)
    for name, data in {**files, PUBLIC_KEY: public_pem(key.public_key())}.items():
        _write(folder / name, data)
    subjects = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    _write(folder / ENVELOPE, signed_envelope(subjects, {"dataset": dataset.name, "request": request}, key))
    return content


@dataclass(frozen=True)
class VerifiedReport:
    """Content of a report that is what was signed."""

    folder: Path
    content: dict[str, Any]


def verify_report(path: Path, key: "Ed25519PublicKey") -> VerifiedReport:
    """Compare a report, by its folder or one of its files, with its signature.

    Files are hashed in pieces; JSON is parsed from bytes that were compared with the signature themselves.

    Raises:
        ReportChanged: a file is missing, was changed, or was signed by another key; or the named file is none that a report has.
        StorageError: a file cannot be read.
    """
    if not path.is_dir() and path.name not in (REPORT, PAGE, ENVELOPE):
        raise ReportChanged(
            path, f"no folder and no file of a report: name its folder, or one of {REPORT}, {PAGE} and {ENVELOPE}"
        )
    folder = path if path.is_dir() else path.parent
    if not (folder / ENVELOPE).exists():
        raise ReportChanged(folder / ENVELOPE, "is missing")
    subjects = verified_subjects(folder / ENVELOPE, key)
    if set(subjects) != {REPORT, PAGE}:
        raise ReportChanged(folder / ENVELOPE, f"signed for {', '.join(sorted(subjects))}, expected {REPORT} and {PAGE}")
    for name, expected in subjects.items():
        _compare(folder / name, expected, _sha256(folder / name))
    data = _content(folder / REPORT)
    # It may have been replaced since it was hashed.
    _compare(folder / REPORT, subjects[REPORT], hashlib.sha256(data).hexdigest())
    content = json.loads(data)
    if content.get("format") != FORMAT:
        raise ReportChanged(folder / REPORT, f"of another version: expected {FORMAT}, found {content.get('format')}")
    return VerifiedReport(folder, content)


def scan_again(platform: Platform, report: VerifiedReport, progress: Progress) -> Scan:
    """Search for the bytes of the samples of a verified report.

    Raises:
        UnknownName: the catalog has no such dataset.
        StorageError: the fingerprints are missing, or not those of the report.
    """
    dataset = platform.view(report.content["dataset"]).row
    path = named_fingerprints(platform.settings.home, report.content["fingerprints"]["file"])
    fingerprints = Fingerprints.read(path)
    if (found := _sha256(path)) != (expected := report.content["fingerprints"]["sha256"]):
        raise StorageError(f"{path}: fingerprints of another deletion: expected SHA-256 {expected}, found {found}")
    return scan(platform, dataset, fingerprints, progress)


def _write(path: Path, data: bytes) -> None:
    with atomic_write(path) as file:
        file.write(data)


def _compare(path: Path, expected: str, found: str) -> None:
    if found != expected:
        raise ReportChanged(path, f"changed since it was signed: expected SHA-256 {expected}, found {found}")


def _sha256(path: Path) -> str:
    with _reading(path), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _content(path: Path) -> bytes:
    with _reading(path):
        return path.read_bytes()


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Tell a file that is missing from one that cannot be read, of which nothing is known."""
    try:
        yield
    except FileNotFoundError as error:
        raise ReportChanged(path, "is missing") from error
    except OSError as error:
        raise StorageError(f"{path}: cannot be read: {error.strerror}") from error
