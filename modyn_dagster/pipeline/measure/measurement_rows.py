"""Measurements as catalog rows: written where something was measured, looked up where nothing may be.

Values go through JSON first: decisions from memory and from Postgres must agree to the last bit.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from pydantic import BaseModel

from modyn_dagster.catalog.decisions import MeasurementRow, measurements_after
from modyn_dagster.catalog.runs import RunRow
from modyn_dagster.digest import bytes_digest
from modyn_dagster.json_values import canonical_json, json_number, json_values_of
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.triggering import Measured, Measurement, MeasurementSpec
from modyn_dagster.triggering.loop import MeasurementPending

_ROWS_AT_ONCE: Final = 5_000


class RecordedMeasurements:
    """What was measured for a run with its newest model, by point. A tick decides from it and measures nothing itself.

    It is asked point after point, and holds some thousand rows however many there are.
    """

    def __init__(self, platform: Platform, run: RunRow) -> None:
        self._platform = platform
        self._run = run
        self._rows: Mapping[int, MeasurementRow] = {}
        #: Points up to here are in ``_rows`` or were not measured when it was read.
        self._read_until: float = -math.inf

    def __call__(self, point: int, needs: MeasurementSpec) -> Measurement:
        """The answer to exactly these needs; ``Unmeasured`` when there is none, or only one to other needs."""
        if point > self._read_until:
            self._read_from(point)
        row = self._rows.get(point)
        if row is None or row.asked != digest_of(needs):
            raise MeasurementPending(point)
        return {path: Measured(values, row.details.get(path, {})) for path, values in row.values.items()}

    def _read_from(self, point: int) -> None:
        model, rows = self._run.previous_model, list[MeasurementRow]()
        if model is not None:
            with self._platform.transaction() as conn:
                rows = measurements_after(conn, self._run.id, model, point - 1, _ROWS_AT_ONCE)
        self._rows = {row.point: row for row in rows}
        self._read_until = rows[-1].point if len(rows) == _ROWS_AT_ONCE else math.inf


def measurement_row(run: RunRow, point: int, needs: MeasurementSpec, measurement: Measurement) -> MeasurementRow:
    """The row of what was measured at a point with the run's newest model."""
    return MeasurementRow(
        run_id=run.id,
        point=point,
        model_hash=str(run.previous_model),
        asked=digest_of(needs),
        values={path: dict(found.values) for path, found in measurement.items()},
        details={path: dict(found.details) for path, found in measurement.items()},
    )


def digest_of(needs: MeasurementSpec) -> str:
    """Short name of what was asked for: another one whenever a window, a metric or a setting is another."""
    content = {path: {"kind": type(need).__name__, **asdict(need)} for path, need in needs.items()}
    return bytes_digest(canonical_json(content, default=_plain).encode())


def _plain(value: object) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    raise TypeError(f"a need holds a {type(value).__name__}, which has no JSON form")


def plain_measurement(measurement: Measurement) -> dict[str, Measured]:
    """The same answers with plain values and details."""
    return {
        path: Measured({name: json_number(value) for name, value in found.values.items()}, json_values_of(found.details))
        for path, found in measurement.items()
    }
