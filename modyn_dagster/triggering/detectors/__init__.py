"""Stream detectors, of river or of users, and their reader."""

from modyn_dagster.triggering.detectors.custom import StreamDetector
from modyn_dagster.triggering.detectors.reader import DetectorReader

__all__ = ["DetectorReader", "StreamDetector"]
