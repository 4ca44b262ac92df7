"""Dagster's GraphQL with nothing but the standard library: the same queries and mutations that its pages send."""

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

_LOCATION: Final = {"repositoryName": "__repository__", "repositoryLocationName": "modyn_dagster.definitions"}

_START_SENSOR: Final = """mutation StartSensor($sensorSelector: SensorSelector!) {
  startSensor(sensorSelector: $sensorSelector) {
    __typename ... on SensorNotFoundError { message } ... on PythonError { message } } }"""
_TICKS: Final = """query Ticks($selector: SensorSelector!, $limit: Int!) { sensorOrError(sensorSelector: $selector) {
  ... on Sensor { sensorState { ticks(limit: $limit) {
    status skipReason runIds error { message causes { message } } } } } } }"""
_BACKFILL: Final = """mutation LaunchPartitionBackfill($backfillParams: LaunchBackfillParams!) {
  launchPartitionBackfill(backfillParams: $backfillParams) {
    __typename
    ... on LaunchBackfillSuccess { backfillId }
    ... on PartitionKeysNotFoundError { message }
    ... on UnauthorizedError { message }
    ... on PythonError { message } } }"""
_BACKFILL_STATUS: Final = """query Backfill($backfillId: String!) { partitionBackfillOrError(backfillId: $backfillId) {
  __typename
  ... on PartitionBackfill { status numPartitions error { message } runs(limit: 10) { id status } } } }"""
_BACKFILLS: Final = """query Backfills { partitionBackfillsOrError(limit: 20) {
  ... on PartitionBackfills { results { id status assetSelection { path } } } } }"""
_MATERIALIZED: Final = """query Partitions($key: AssetKeyInput!) { assetNodeOrError(assetKey: $key) { __typename
  ... on AssetNode { partitionKeys assetPartitionStatuses { __typename
    ... on DefaultPartitionStatuses {
      materializedPartitions failedPartitions unmaterializedPartitions materializingPartitions } } } } }"""
_CHECKS: Final = """query Checks($key: AssetKeyInput!, $check: String!) {
  assetCheckExecutions(assetKey: $key, checkName: $check, limit: 1000) {
    status evaluation { success partition } } }"""
_RUNS: Final = """query Runs { runsOrError(limit: 200) { ... on Runs { results {
  id status assetSelection { path } tags { key value } } } } }"""
_EVENTS: Final = """query Events($runId: ID!) { logsForRun(runId: $runId, limit: 1000) {
  ... on EventConnection { events { __typename ... on MessageEvent { message }
    ... on ErrorEvent { error { message causes { message } } } } } } }"""


def backfill_variables(asset: Sequence[str], partitions: Sequence[str]) -> dict[str, Any]:
    """Variables that the page sends with its mutation ``LaunchPartitionBackfill``."""
    return {
        "backfillParams": {
            "tags": [{"key": "dagster/from_ui", "value": "true"}],
            "assetSelection": [{"path": list(asset)}],
            "partitionNames": list(partitions),
            "fromFailure": False,
        }
    }


@dataclass(frozen=True)
class GraphQL:
    """A running webserver; ``why`` says more about one that does not answer, ``token`` is what it asks for."""

    url: str
    why: Callable[[], str]
    token: str | None = None

    def ask(self, query: str, **variables: Any) -> Any:
        """The ``data`` of the answer; errors are raised with what the server says."""
        body = json.dumps({"query": query, "variables": variables}).encode()
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {self.token}"} if self.token else {})
        request = urllib.request.Request(f"{self.url}/graphql", body, headers)  # noqa: S310 - an http address of ours
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=60) as answer:
                content = json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                raise AssertionError(f"{error.code}: {error.read().decode(errors='replace')[:2000]}") from error
        except OSError as error:
            raise AssertionError(f"{self.url} does not answer: {error}\n{self.why()}") from error
        assert "errors" not in content, content["errors"]
        return content["data"]

    def start_sensor(self, name: str) -> None:
        """Flip the switch of a sensor."""
        found = self.ask(_START_SENSOR, sensorSelector={**_LOCATION, "sensorName": name})["startSensor"]
        assert found["__typename"] == "Sensor", found

    def ticks(self, sensor: str, limit: int = 8) -> list[Mapping[str, Any]]:
        """The newest ticks of a sensor."""
        ticks: list[Mapping[str, Any]]
        answer = self.ask(_TICKS, selector={**_LOCATION, "sensorName": sensor}, limit=limit)
        ticks = answer["sensorOrError"]["sensorState"]["ticks"]
        return ticks

    def launch_backfill(self, asset: Sequence[str], partitions: Sequence[str]) -> str:
        """Start a backfill as the button of the dialog does; returns its id."""
        found = self.ask(_BACKFILL, **backfill_variables(asset, partitions))["launchPartitionBackfill"]
        assert found["__typename"] == "LaunchBackfillSuccess", found
        return str(found["backfillId"])

    def backfill(self, backfill_id: str) -> Mapping[str, Any]:
        """Status, number of partitions, error and runs of a backfill."""
        found: Mapping[str, Any] = self.ask(_BACKFILL_STATUS, backfillId=backfill_id)["partitionBackfillOrError"]
        assert found["__typename"] == "PartitionBackfill", found
        return found

    def backfills(self, asset: Sequence[str]) -> list[str]:
        """Ids of the backfills of an asset, newest first."""
        results = self.ask(_BACKFILLS)["partitionBackfillsOrError"]["results"]
        return [row["id"] for row in results if [key["path"] for key in row["assetSelection"] or []] == [list(asset)]]

    def partitions(self, asset: Sequence[str]) -> tuple[list[str], Mapping[str, list[str]]]:
        """All partition keys of an asset, and those of each status."""
        node = self.ask(_MATERIALIZED, key={"path": list(asset)})["assetNodeOrError"]
        assert node["__typename"] == "AssetNode", (asset, node)
        return node["partitionKeys"], node["assetPartitionStatuses"]

    def checks(self, asset: Sequence[str], check: str) -> list[Mapping[str, Any]]:
        """Executions of an asset check, newest first."""
        found: list[Mapping[str, Any]] = self.ask(_CHECKS, key={"path": list(asset)}, check=check)["assetCheckExecutions"]
        return found

    def runs(self) -> list[Mapping[str, Any]]:
        """All runs, newest first."""
        results: list[Mapping[str, Any]] = self.ask(_RUNS)["runsOrError"]["results"]
        return results

    def messages(self, run_id: str) -> list[str]:
        """The messages of a run's log, with the causes of errors."""
        events = self.ask(_EVENTS, runId=run_id)["logsForRun"]["events"]
        lines = []
        for event in events:
            lines.append(event.get("message") or "")
            if error := event.get("error"):
                lines += [error["message"], *(cause["message"] for cause in error["causes"])]
        return lines
