"""A champion that saw deleted samples is gone everywhere at once: in the gate, the history, MLflow and whatever serves it."""

import json
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlflow.pyfunc
import numpy as np
import pytest
from click.testing import CliRunner
from mlflow.exceptions import MlflowException

from modyn_dagster.catalog.runs import RunRow
from modyn_dagster.cli import main
from modyn_dagster.errors import ModynError, VersionUnavailable
from modyn_dagster.keys import KeyArray
from modyn_dagster.serving import ServedModel, load
from tests.conftest import RunningServer
from tests.pipeline.promotion.test_deletion import asking, consistent, hashes, samples_of, state_of
from tests.projects.tiny import DATASET
from tests.serving.served import Served, four_days

pytestmark = pytest.mark.soak("deletions")

ROWS = {"x": np.array([0.5, -2.0]), "y": np.array([-1.0, 3.0])}


@dataclass
class Shown:
    """A live pipeline whose gate tests candidates, and its MLflow."""

    served: Served
    name: str
    run: RunRow

    def command(self, *arguments: str) -> str:
        result = CliRunner().invoke(main, arguments, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.stdout

    def delete(self, keys: KeyArray, *options: str) -> str:
        text = ",".join(map(str, keys.tolist()))
        return self.command("dataset", "delete", DATASET, "--keys", text, "--execute", "--yes", *options)

    def history(self) -> Any:
        return json.loads(self.command("model", "history", self.name, "--json"))

    def champion(self) -> int:
        found = state_of(self.served.world, self.run)[1].champion
        assert found is not None
        return found

    def models(self) -> dict[int, str]:
        return hashes(self.served.world, self.run)

    def versions(self) -> dict[str, Any]:
        """Versions in MLflow by their models."""
        found = self.served.client.search_model_versions(f"name = '{self.name}'")
        return {version.tags["modyn/model"]: version for version in found}

    def aliases(self) -> dict[str, str]:
        """Models by the aliases that their versions have."""
        models = {str(version.version): model for model, version in self.versions().items()}
        found = self.served.client.get_registered_model(self.name).aliases
        return {alias: models[str(version)] for alias, version in found.items()}


@pytest.fixture
def shown(postgres_server: RunningServer, mlflow_uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shown]:
    name = f"p_{secrets.token_hex(4)}"
    with four_days(postgres_server, mlflow_uri, tmp_path, asking() | {"name": name, "live": "champion"}) as served:
        for variable, value in served.world.settings.environment().items():
            monkeypatch.setenv(variable, value)
        monkeypatch.setenv("MODYN_MLFLOW_URI", mlflow_uri)
        monkeypatch.setenv("MLFLOW_TRACKING_URI", mlflow_uri)
        served.live(name)
        yield Shown(served, name, served.world.run(name, "live"))


def promoted(shown: Shown, *triggers: int) -> ServedModel:
    """Promote by hand, and load the champion for serving."""
    for trigger in triggers:
        shown.command("model", "promote", shown.name, "--trigger", str(trigger), "--as", "ann")
    model = load(shown.name, "champion")
    assert model.version.model == shown.models()[triggers[-1]]
    return model


def gone_everywhere(shown: Shown, models: Sequence[str]) -> None:
    """Nothing of the models can be loaded, and their versions say why."""
    store, versions = shown.served.world.platform.model_store, shown.versions()
    for model in models:
        with pytest.raises(ModynError):
            store.load(model)
        assert model not in shown.aliases().values()
        version = versions[model]
        assert version.tags["modyn/deleted_samples"] == "deletion request 1"
        with pytest.raises((ModynError, MlflowException)):
            mlflow.pyfunc.load_model(f"models:/{shown.name}/{version.version}")


def agree(shown: Shown, serving: ServedModel) -> None:
    """Gate, history, MLflow and whatever serves name one champion."""
    consistent(shown.served.world, shown.run)
    champion = shown.champion()
    model = shown.models()[champion]
    assert shown.aliases()["champion"] == shown.aliases()["live"] == model
    now = [each for each in shown.history()["live"] if each["to"] is None]
    assert [(each["trigger"], each["model"]) for each in now] == [(f"{shown.run.id:06d}-{champion:06d}", model)]
    moments = [each["from"] for each in shown.history()["live"] if each["model"] == model]
    tag = shown.versions()[model].tags["modyn/live_from"].split()
    assert len(tag) == len(moments)
    serving.reload()
    assert serving.version.model == load(shown.name, alias="champion").version.model == model
    bits = serving.predict(ROWS, "outputs").values.tobytes()
    loaded = mlflow.pyfunc.load_model(f"models:/{shown.name}@champion")
    assert loaded.predict(ROWS, params={"output": "outputs"}).tobytes() == bits
    [status] = json.loads(shown.command("pipeline", "status", shown.name, "--json"))
    assert status["promotion"]["champion"] == now[0]["trigger"]
    live = json.loads(shown.command("model", "live", shown.name, "--json"))
    assert (live["model"], live["trigger"]) == (model, now[0]["trigger"])


def test_a_champion_that_is_withdrawn_is_followed_by_the_one_before_everywhere(shown: Shown) -> None:
    world = shown.served.world
    serving = promoted(shown, 1, 2)
    old = shown.models()[2]
    shown.delete(samples_of(world, shown.run, 2)[:5], "--way", f"{shown.name}=roll_back")
    assert shown.champion() == 1
    gone_everywhere(shown, [old])
    agree(shown, serving)


def test_a_champion_that_saw_the_samples_is_made_again_though_the_newest_model_did_not(shown: Shown) -> None:
    world, way = shown.served.world, f"{shown.name} run {shown.run.id}: retrain (by the ledger)"
    serving = promoted(shown, 1)
    before = shown.models()
    [asked] = [each["from"] for each in shown.history()["live"] if each["to"] is None]
    assert way in shown.delete(samples_of(world, shown.run, 1)[:5])
    assert shown.champion() == 1
    after = shown.models()
    assert {trigger for trigger, model in after.items() if model != before[trigger]} == {1}
    gone_everywhere(shown, [before[1]])
    agree(shown, serving)
    # The old model was live until then, and nothing else.
    *_, old, new = shown.history()["live"]
    assert (old["model"], old["from"], old["to"]) == (before[1], asked, new["from"])
    assert (new["model"], new["actor"]) == (after[1], "deletion")
    page = shown.served.client.get_registered_model(shown.name).description.splitlines()
    rows = [f"| {shown.versions()[each].version}" for each in (after[1], before[1], after[0])]
    assert [row.split(" | ")[0] for row in page[2:5]] == rows


def test_a_champion_without_a_successor_leaves_nothing_to_serve_until_the_next_model(shown: Shown) -> None:
    world = shown.served.world
    serving = promoted(shown, 0)
    old = shown.models()[0]
    for trigger in [each.trigger for each in state_of(world, shown.run)[1].candidates]:
        shown.command("model", "reject", shown.name, "--trigger", str(trigger), "--as", "ann")
    shown.delete(samples_of(world, shown.run, 0)[:5], "--way", f"{shown.name}=roll_back")
    consistent(world, shown.run)
    assert world.reread(shown.run.id).champion_model is None
    assert set(shown.aliases()) == {"current"}
    gone_everywhere(shown, [old])
    assert [each["to"] is None for each in shown.history()["live"]] == [False]
    with pytest.raises(VersionUnavailable, match="not found"):
        load(shown.name, alias="champion")
    with pytest.raises(VersionUnavailable, match="not found"):
        serving.reload()
    refused = CliRunner().invoke(main, ["model", "live", shown.name])
    assert (refused.exit_code, "had no live model" in refused.stderr) == (1, True)
    world.deliver([4])
    shown.served.live(shown.name)
    assert shown.champion() > 3
    agree(shown, serving)
