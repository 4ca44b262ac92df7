"""Measurements as catalog rows, and their lookup.

Values go through JSON first, so that decisions from memory and from Postgres are bit-identical.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from pydantic import BaseModel

from modyn_dagster.catalog.decisions import MeasurementRow, measurements_after, measurements_at
from modyn_dagster.catalog.runs import RunRow
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.triggering import Measured, Measurement, MeasurementSpec
from modyn_dagster.triggering.loop import MeasurementPending
from modyn_dagster.triggering.measurement import Need
from modyn_dagster.values.digest import bytes_digest
from modyn_dagster.values.json_values import canonical_json, json_number, json_values_of

ROWS_AT_ONCE: Final = 5_000
#: Fields of needs that came later, and are None where they are not used.
_ADDED: Final = frozenset({"interval", "maturity"})
#: Fields of needs that follow from the policy at the path, and are no part of a digest.
_IMPLIED: Final = frozenset({"first_labels"})


class RecordedMeasurements:
    """Recorded measurements of a run with its live model, by point. A tick decides from them without measuring.

    Points are asked in order; at most some thousand rows are in memory.
    """

    def __init__(self, platform: Platform, run: RunRow) -> None:
        self._platform = platform
        self._run = run
        self._rows: Mapping[int, MeasurementRow] = {}
        #: Last point that the rows in memory cover.
        self._read_until: float = -math.inf

    def __call__(self, point: int, needs: MeasurementSpec) -> Measurement:
        """Return the answer to exactly these needs, or raise ``MeasurementPending``."""
        if point > self._read_until:
            self._read_from(point)
        row = self._rows.get(point)
        if row is None or row.asked != needs_digest(needs):
            raise MeasurementPending(point)
        return {path: Measured(values, row.details.get(path, {})) for path, values in row.values.items()}

    def _read_from(self, point: int) -> None:
        model, rows = self._run.live_model, list[MeasurementRow]()
        if model is not None:
            with self._platform.transaction() as conn:
                rows = measurements_after(conn, self._run.id, model, point - 1, ROWS_AT_ONCE)
        self._rows = {row.point: row for row in rows}
        self._read_until = rows[-1].point if len(rows) == ROWS_AT_ONCE else math.inf


def recorded_details(platform: Platform, run: RunRow, model_hash: str, point: int) -> Mapping[str, Mapping[str, Any]]:
    """Details of a run's measurement with a model at a point, by path of the need; empty where none is recorded."""
    with platform.transaction() as conn:
        return next((row.details for row in measurements_at(conn, run.id, point) if row.model_hash == model_hash), {})


def measurement_row(run: RunRow, point: int, needs: MeasurementSpec, measurement: Measurement) -> MeasurementRow:
    """Return the row of a measurement at a point with the run's live model."""
    return MeasurementRow(
        run_id=run.id,
        point=point,
        model_hash=str(run.live_model),
        asked=needs_digest(needs),
        values={path: dict(measured.values) for path, measured in measurement.items()},
        details={path: dict(measured.details) for path, measured in measurement.items()},
    )


def needs_digest(needs: MeasurementSpec) -> str:
    """Digest needs: any other window, metric or setting gives another digest."""
    content = {path: {"kind": type(need).__name__, **_asked(need)} for path, need in needs.items()}
    return bytes_digest(canonical_json(content, default=_json_default).encode())


def _asked(need: Need) -> dict[str, Any]:
    """Fields of a need. One that came later counts only where it is used, so that recorded answers keep their digests."""
    given = {name: value for name, value in asdict(need).items() if name not in _IMPLIED}
    return {name: value for name, value in given.items() if value is not None or name not in _ADDED}


def _json_default(value: object) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    raise TypeError(f"a need holds a {type(value).__name__}, which has no JSON form")


def json_measurement(measurement: Measurement) -> dict[str, Measured]:
    """Convert answers to plain JSON values and details."""
    return {
        path: Measured({name: json_number(value) for name, value in measured.values.items()}, json_values_of(measured.details))
        for path, measured in measurement.items()
    }
