"""Code of users that hangs at every hook, in production through the programs that run it: it is ended, and others go on."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from modyn_dagster.assets.dagster_runs import BACKLOG_TAG, NOTIFY_TAG
from tests.conftest import RunningServer
from tests.integration.harness.deployment import Deployment, deployed
from tests.integration.harness.servers import Servers, served
from tests.integration.harness.waiting import wait_for
from tests.projects.tiny import DATASET, Content, amount, batch_text, custom, drop, triggered

QUICK: Final = "quick"
#: Hooks of a training: each hangs in a pipeline of its name, whose trigger then fails.
TRAINING: Final = ("parser", "transform", "model", "loss", "optimizer", "downsampling", "expression")
#: Hooks of a tick.
TICK: Final = ("policy", "vote")
BYTES: Final = "bytes"
SECONDS: Final = 60


def pipelines() -> Iterator[Content]:
    ended: Content = {"every": 60, "max_run_time": f"{SECONDS}s", "max_attempts": 1}
    yield amount(QUICK, every=60)
    parsing = amount("parser", **ended | {"every": 4}) | {"dataset": BYTES}
    parsing["training"] |= {"parser": "tiny_hanging:parser"}
    yield parsing
    transforming = amount("transform", **ended)
    transforming["training"]["transforms"] = [{"function": "tiny_hanging:transform", "draws": False}]
    yield transforming
    for hook in ("model", "loss", "optimizer"):
        yield custom(hook, f"tiny_hanging:{hook}", field=hook, **ended)
    keeping = amount("downsampling", **ended)
    keeping["training"]["downsampling"] = {"policy": {"factory": "tiny_hanging:downsampling"}, "ratio": 0.5}
    yield keeping
    weighted = {"kind": "weighted", "expression": "tiny_hanging:expression", "ratio": 0.5}
    yield amount("expression", **ended) | {"selection": {"strategy": weighted, "backend": "postgres"}}
    measuring = amount("metric", **ended)
    measuring["evaluation"]["metrics"] = ["accuracy", "tiny_hanging:metric"]
    # Short enough that some are over, and scored, after two days.
    measuring["evaluation"]["intervals"]["every"] = "6h"
    yield measuring
    yield amount("hook", every=60, notify={"hook": "tiny_hanging:hook", "max_run_time": f"{SECONDS}s"})
    yield triggered("policy", {"kind": "custom", "factory": "tiny_hanging:Policy"})
    votes = {"kind": "ensemble", "policies": {"a": {"kind": "amount", "every": 60}}, "rule": {"factory": "tiny_hanging:vote"}}
    yield triggered("vote", votes)


def write_bytes(project: Path) -> None:
    """A dataset whose samples are files: only those need a parser."""
    dataset: Content = {
        "name": BYTES,
        "root": f"../{BYTES}",
        "format": {"kind": "files", "suffixes": [".bin"]},
        "batches": {"kind": "directory"},
        "time": {"source": "mtime"},
        "label": {"kind": "class", "n_classes": 2, "from": {"source": "folder"}},
    }
    (project / "datasets" / f"{BYTES}.yaml").write_text(yaml.safe_dump(dataset))
    for number in range(8):
        folder = project / BYTES / "first" / str(number % 2)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}.bin").write_bytes(bytes([number]))
    (project / BYTES / "first" / "_READY").touch()


@pytest.fixture
def deployment(postgres_server: RunningServer, tmp_path: Path) -> Iterator[Deployment]:
    with deployed(postgres_server, tmp_path, list(pipelines())) as deployment:
        write_bytes(deployment.project)
        yield deployment


@pytest.fixture
def servers(deployment: Deployment) -> Iterator[Servers]:
    for day in range(2):
        drop(deployment.project, f"day_{day:02d}", batch_text(day))
    for dataset in (DATASET, BYTES):
        deployment.command("dataset", "import", dataset)
    with served(deployment) as servers:
        yield servers


@pytest.mark.soak("hangs")
def test_user_code_that_hangs_anywhere_is_ended_and_named_while_others_go_on(servers: Servers) -> None:
    deployment, names = servers.deployment, [content["name"] for content in pipelines()]
    sensors = [f"new_data__{DATASET}", *(f"triggering__{name}" for name in names)]

    def until(event: str, look: Callable[..., bool], *names: str) -> None:
        wait_for(" ".join([event, *names]), lambda: look(*names), 420, lambda: servers.why(*sensors))

    def is_named(hook: str) -> bool:
        return any("hang_at (" in error for error in errors(servers, f"triggering__{hook}"))

    def hangs(hook: str) -> bool:
        return (deployment.settings.home / f"{hook}.hangs").exists()

    def is_ended(pipeline: str) -> bool:
        """True once a run of the pipeline was ended for its duration and says so."""
        over = [run for run in servers.graphql.runs() if run["status"] in ("FAILURE", "CANCELED") and is_of(run, pipeline)]
        return any(f"maximum runtime of {SECONDS} seconds" in " ".join(servers.graphql.messages(run["id"])) for run in over)

    def waits(pipeline: str) -> bool:
        """True once its trigger has failed and its run asks for a person."""
        run, triggers = deployment.run(pipeline, "live"), deployment.triggers(pipeline, "live")
        return run is not None and run.state == "waiting" and [trigger.state for trigger in triggers] == ["failed"]

    def n_trained(pipeline: str) -> int:
        return sum(trigger.state == "trained" for trigger in deployment.triggers(pipeline, "live"))

    # It tells what happens after its first tick.
    until("the first tick of the hook's sensor", lambda: bool(servers.graphql.ticks("notifying__hook")))
    for sensor in sensors[:2]:
        servers.graphql.start_sensor(sensor)
    # The first run imports everything, which the others are spared: they reach their hook long before their time is over.
    until("a model of the other pipeline", lambda: n_trained(QUICK) == 1)
    for sensor in sensors[2:]:
        servers.graphql.start_sensor(sensor)
    for hook in TICK:
        until("a tick names", is_named, hook)
    for hook in (*TRAINING, "metric", "hook"):
        until("in its function hangs", hangs, hook)
        until("after its time is ended", is_ended, hook)
    for hook in TRAINING:
        until("for a person waits", waits, hook)
    assert n_trained("metric") == 1, "the model was there before its evaluation hung"
    for day in (2, 3):
        drop(deployment.project, f"day_{day:02d}", batch_text(day))
    until("the other pipeline to go on", lambda: n_trained(QUICK) > 1)


def is_of(run: Mapping[str, Any], pipeline: str) -> bool:
    """The run trains for a pipeline, or calls its hook."""
    return any({"key": tag, "value": pipeline} in run["tags"] for tag in (BACKLOG_TAG, NOTIFY_TAG))


def errors(servers: Servers, sensor: str) -> list[str]:
    """Messages of the failed ticks of a sensor: Dagster's own is about the error that it was raised from."""
    failed = [tick["error"] for tick in servers.graphql.ticks(sensor) if tick["error"]]
    return [cause["message"] for error in failed for cause in error["causes"]]
