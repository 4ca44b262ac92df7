"""Content of a report: the document of a finished deletion without what names its samples, the scan, and what stays unproven."""

from collections.abc import Mapping
from typing import Any, Final

from modyn_dagster import __version__
from modyn_dagster.keys import KeyArray
from modyn_dagster.pipeline.operate.deletion.document import DeletionDocument, digests_of
from modyn_dagster.pipeline.operate.deletion.report.fingerprints import Fingerprints
from modyn_dagster.pipeline.operate.deletion.report.scan import Scan

FORMAT: Final = "modyn-dagster deletion report 1"

#: Facts that no scan can prove, on any machine.
_NEVER: Final = (
    "Originals outside of our home, such as deliveries, mail and exports of those who made them.",
    "Dead rows in Postgres' files and its write-ahead log, until vacuum and rotation overwrite them.",
    "Backups of the home, of Postgres and of model stores.",
    "Free blocks of the disk, until the file system writes there again.",
    "Weights, predictions and reports that were exported, copied or served elsewhere.",
    "Artifacts of MLflow and logs of Dagster that are kept outside of the home and of our databases.",
    "Other encodings of the samples: compressed, encrypted, base64, escaped, numbers written in other digits, parts of a sample.",
)


def report_content(
    document: DeletionDocument, keys: KeyArray, fingerprints: Fingerprints, file: Mapping[str, str], scan: Scan
) -> dict[str, Any]:
    """Content of the report, as JSON values.

    Neither the salt, nor keys and positions, nor the text of the selection are in it, as they could name a person.

    Args:
        document: of the finished request.
        keys: of its samples, ``uint64[n]``, ascending.
        fingerprints: of its samples.
        file: name and SHA-256 of the file of fingerprints.
        scan: made with them.
    """
    facts = document.model_dump(mode="json", exclude={"format", "salt", "batches", "selection"})
    return {
        "format": FORMAT,
        "made_by": f"modyn-dagster {__version__}",
        **facts,
        "selection": {"by": document.selection.by, "digest": document.selection.digest(document.salt)},
        "samples": document.n_samples,
        "key_digests": digests_of(document.salt, document.dataset, keys.tolist()),
        "batches": [{"batch": batch.batch, "samples": batch.n_samples} for batch in document.batches],
        "fingerprints": _fingerprints(fingerprints, file),
        "scan": scan.to_json(),
        "not_proven": [*_NEVER, *_not_proven(document, fingerprints, scan)],
    }


def _fingerprints(fingerprints: Fingerprints, file: Mapping[str, str]) -> Mapping[str, Any]:
    with_pieces = len(fingerprints.pieces["sample"].unique())
    return {
        **file,
        "pieces": len(fingerprints.pieces),
        "samples_searched": with_pieces,
        "samples_not_searched": len(fingerprints.keys) - with_pieces,
        "too_short_or_regular": dict(fingerprints.not_provable),
        "unread": dict(fingerprints.unread),
    }


def _not_proven(document: DeletionDocument, fingerprints: Fingerprints, scan: Scan) -> list[str]:
    """Facts of this deletion that are not proven."""
    facts = []
    if not document.purge:
        facts.append("The bytes in shards, labels and attributes were not overwritten: the deletion was made without a purge.")
    if originals := scan.found("original"):
        facts.append(
            f"Original files outside of the home that still hold bytes of the samples: {len(originals)}; the scan names them."
        )
    if shared := scan.found("shared"):
        facts.append(f"Files with bytes that samples which stay have too: {len(shared)}. Whose they are cannot be told.")
    if short := sum(fingerprints.not_provable.values()):
        facts.append(
            f"Representations that are too short or too regular to be told from other bytes, and were not searched: {short}."
        )
    facts += [f"Samples that could not be read before the deletion: {n} ({reason})." for reason, n in fingerprints.unread.items()]
    facts += [
        f"Files in the format {name} that were searched as they are, not unpacked: {n}." for name, n in scan.encoded.items()
    ]
    facts += [f"The {address} was not searched." for address in scan.elsewhere]
    if scan.unread:
        facts.append(f"Files and folders that could not be read: {len(scan.unread)}; the scan names them.")
    if document.decisions_depend:
        facts.append(
            f"Triggers that stay, and were decided after the first of the samples had arrived: {document.decisions_depend}. "
            "Their times and reasons still depend on the samples."
        )
    return facts
