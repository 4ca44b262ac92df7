"""Check of recorded files: the bytes that a row of the catalog, or an index, says they have."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from modyn_dagster.errors import CorruptFile, ModynError
from modyn_dagster.pipeline.integrity.finding import Finding, Kind, finding_of, shown_path, unverified
from modyn_dagster.pipeline.integrity.pacing import Pace


@dataclass(frozen=True)
class Check:
    """A row of the catalog with the files that it names.

    Attributes:
        kinds: kinds of the files.
        paths: files, absolute; a file at another path is not theirs.
        findings: reads the files and yields what is wrong.
        holds: tells whether the row is still as it was when the check was planned; its findings count only then.
        remake: makes the files again, with the recorded bytes or not at all; None for what is not derived from anything.
            Raises ``ModynError`` or ``OSError``.
        step: ordinal of the trigger, after which the checks of a run are ordered.
    """

    kinds: Sequence[Kind]
    paths: Sequence[Path]
    findings: Callable[[Pace], Iterator[Finding]]
    holds: Callable[[], bool] = lambda: True
    remake: Callable[[], None] | None = None
    step: int = 0

    def run(self, home: Path, pace: Pace) -> list[Finding]:
        """Findings, without those about files that were replaced or removed meanwhile.

        An error is the last finding, ``unverified``, after what was found before it. Raises ``CatalogError`` when Postgres does
        not answer.
        """
        found: list[Finding] = []
        try:
            for finding in self.findings(pace):
                found.append(finding)  # noqa: PERF402 - what was found before an error stays
        except (ModynError, OSError) as error:
            found.append(self._unverified(home, error))
        try:
            return found if not found or self.holds() else []
        except (ModynError, OSError) as error:
            return [*found, self._unverified(home, error)]

    def _unverified(self, home: Path, error: Exception) -> Finding:
        path = shown_path(home, next(iter(self.paths), self.kinds[0]))
        return unverified(self.kinds[0], path, str(home), error)


def file_findings(kind: Kind, home: Path, path: Path, checksum: str, owner: str, remedy: str, pace: Pace) -> Iterator[Finding]:
    """Yield a finding unless a file has this checksum (hex BLAKE2b, 16 bytes)."""
    try:
        pace.verify(path, checksum)
    except CorruptFile as error:
        yield finding_of(kind, home, error, owner, remedy)
