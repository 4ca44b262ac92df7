"""Mistakes in calls of `modyn-dagster model`: a sentence says what to do, and nothing breaks."""

import json
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from modyn_dagster.catalog.results.models import list_models
from modyn_dagster.cli import main
from modyn_dagster.model_store import Architecture, ModelStore, Provenance
from modyn_dagster.model_store.format.record import Record
from modyn_dagster.settings import Settings
from tests.cli.test_model import HERE, model, models, store
from tests.model_store import trainings
from tests.pipeline.world import make_world
from tests.projects.tiny import amount
from tests.terminal import terminal_of

__all__ = ["models", "store"]

SELF = "tests.cli.test_model_errors"


class Branching(nn.Module):
    """Module whose operations depend on its input, which no trace can hold."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(6))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight if x.sum() > 0 else x


def failing() -> object:
    raise RuntimeError("no data here")


def failing_step() -> object:
    return nn.Identity, (torch.ones(2),), lambda outputs: outputs.missing


def refused(*arguments: str, code: int = 1) -> str:
    """The error of a command; it is one sentence, and no traceback."""
    result = model(*arguments)
    assert result.exit_code == code, (result.stdout, result.exception)
    assert isinstance(result.exception, SystemExit), result.exception
    assert "Traceback" not in result.stderr
    if code == 1:
        assert result.stderr.startswith("error: ")
        assert result.stderr.count("\n") == 1
    return result.stderr


@pytest.mark.parametrize("command", [["show"], ["verify"], ["export"], ["delete", "--yes"], ["diff"]], ids=lambda each: each[0])
def test_a_model_that_is_not_there_is_named_with_what_there_is(models: list[str], tmp_path: Path, command: list[str]) -> None:
    further = {"export": [str(tmp_path / "x.safetensors")], "diff": [models[0]]}.get(command[0], [])
    error = refused(*command, "fffff", *further)
    assert f"no model 'fffff' in this store of {len(models)} models; `modyn-dagster model list` shows them" in error


def test_digits_of_several_models_are_not_enough(store: ModelStore) -> None:
    found = sorted(store.save({"x": torch.tensor(n)}) for n in range(17))
    first = next(one[0] for one, other in pairwise(found) if one[0] == other[0])
    assert "give more digits" in refused("show", first)


@pytest.mark.parametrize("command", ["list", "tree", "verify", "gc"])
def test_a_store_that_is_not_there_is_an_error_and_nothing_is_made(tmp_path: Path, command: str) -> None:
    for place in (tmp_path / "nowhere", tmp_path / "file"):
        (tmp_path / "file").write_text("mine")
        assert f"must be an existing folder, or a URL (found '{place}')" in refused(command, "--store", str(place))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]


def test_gc_leaves_what_is_not_the_stores(tmp_path: Path) -> None:
    """Also where somebody keeps models among other files, or names the wrong folder."""
    theirs = [
        tmp_path / name
        for name in ("documents/thesis.tex", "documents/ab/notes", "documents/ab/.draft.tmp.old", "work/.x.tmp", ".y.tmp", "ab/z")
    ]
    for path in theirs:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
    ours = [tmp_path / "ab" / ".killed.tmp", tmp_path / "documents" / "ab" / ("ab" * 32)]
    for path in ours:
        path.write_text("left")
    ModelStore(tmp_path).save({"a": torch.ones(3)})
    result = model("gc", "--store", str(tmp_path))
    assert sorted(result.stdout.splitlines()) == sorted([*map(str, ours), "2 files removed"])
    assert all(path.read_text() == "mine" for path in theirs)


@pytest.mark.soak("screens")
def test_what_an_export_cannot_do_is_said_and_nothing_is_written(store: ModelStore, tmp_path: Path) -> None:
    network = store.save(trainings.network().state_dict(), model=Architecture(f"{HERE}:network", {"width": 8}))
    other = store.save({"a": torch.ones(2)}, model=Architecture(f"{HERE}:network", {"depth": 8}))
    plain = store.save({"a": torch.ones(3)})
    branching = store.save(Branching().state_dict(), model=f"{SELF}:Branching")
    inputs, wide, junk = (tmp_path / f"{name}.safetensors" for name in ("inputs", "wide", "junk"))
    save_file({"x": torch.ones(2, 6)}, inputs)
    save_file({"x": torch.ones(2, 7)}, wide)
    junk.write_text("junk")
    to = str(tmp_path / "m.pt")
    allowed = ("--allow", HERE, "--allow", SELF)
    given = ("--inputs", str(inputs), "--positional")

    def error(which: str, path: str, *more: str) -> str:
        return refused("export", which, path, *more)

    assert "was saved without the architecture of a pipeline's model" in error(network, str(tmp_path / "m.onnx"))
    assert "must end in one of .safetensors, .pt, .pt2" in error(network, str(tmp_path / "m.bin"), *given)
    assert "give inputs=(…) (--inputs FILE)" in error(network, to, *allowed)
    assert "saved without its architecture; save it with model=…, or export .safetensors" in error(plain, to, *allowed, *given)
    assert "cannot be built: model: expected a function below modyn_dagster.training.module:" in error(network, to, *given)
    assert f"found {HERE}:network; if you trust it, allow=['{HERE}'] (--allow {HERE}) lets it run" in error(network, to, *given)
    assert "must be a safetensors file of example inputs" in error(network, to, *allowed, "--inputs", str(junk))
    assert "cannot be called with these: RuntimeError: mat1" in error(
        network, to, *allowed, "--inputs", str(wide), "--positional"
    )
    assert "(--positional: with arguments) (found [{'x': [2, 6]}])" in error(network, to, *allowed, "--inputs", str(inputs))
    assert "fails to build the module: TypeError" in error(other, to, *allowed, *given)
    untraced = model("export", branching, str(tmp_path / "m.pt2"), *allowed, *given)
    # Torch prints what it had got to, and then comes our sentence.
    assert untraced.stderr.splitlines()[-1].startswith("error: export: model: torch cannot trace it: ")
    assert sorted(path.name for path in tmp_path.glob("m.*")) == []


def test_a_file_that_is_there_is_replaced_only_where_that_is_asked_for(models: list[str], tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    path.write_text("mine")
    assert "exists already; --overwrite replaces it" in refused("export", models[0], str(path))
    assert path.read_text() == "mine"
    assert model("export", models[0], str(path), "--overwrite").exit_code == 0
    assert load_file(path)
    assert "exists already; choose another one" in refused("export", models[0], str(tmp_path), "--overwrite")
    assert "cannot be written" in refused("export", models[0], str(path / "below.safetensors"))


def test_a_model_without_weights_is_exported_with_retrain_alone(store: ModelStore, tmp_path: Path) -> None:
    recipe = Provenance(train=f"{HERE}:train", data=3, seed=1, code="of another day")
    state = recipe.run(None, allow=[HERE])
    saved = store.save(state, strategy="provenance", provenance=recipe)
    path = tmp_path / "m.safetensors"
    assert "is stored without weights" in (error := refused("export", saved, str(path)))
    assert "--retrain" in error
    assert f"(--allow {HERE}) lets it run" in refused("export", saved, str(path), "--retrain")
    done = model("export", saved, str(path), "--retrain", "--allow", HERE)
    assert done.exit_code == 0, done.stderr
    assert done.stderr.startswith("warning: the model was trained with code of another day, here it is ")
    assert Record.of({name: load_file(path)[name] for name in state}).id == saved
    assert '"train": "tests.model_store.trainings:train"' in model("show", saved).stdout


@pytest.mark.soak("screens")
def test_a_pipelines_model_without_weights_is_exported_by_the_platform_of_the_environment(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(settings, tmp_path / "project", [amount(every=40, model_store={"strategy": "provenance"})])
    for name, value in world.settings.environment().items():
        monkeypatch.setenv(name, value)
    world.deliver([0])
    world.replay("by_amount")
    with world.platform.transaction() as conn:
        [row] = list_models(conn, world.run("by_amount", "replay").id)
    world.close()
    path = tmp_path / "m.safetensors"
    assert "--retrain" in refused("export", row.hash, str(path))
    done = model("export", row.hash, str(path), "--retrain")
    assert done.exit_code == 0, done.stderr
    found = load_file(path)
    order = [tensor.name for tensor in ModelStore(world.platform.home / "models").info(row.hash).tensors]
    assert Record.of({name: found[name] for name in order}).id == row.hash
    inputs = {"features": torch.linspace(-2, 2, 16, dtype=torch.float64).reshape(8, 2)}
    save_file(inputs, tmp_path / "inputs.safetensors")
    programs = [str(tmp_path / f"m{suffix}") for suffix in (".pt", ".pt2")]
    for program in programs:
        done = model("export", row.hash, program, "--retrain", "--inputs", str(tmp_path / "inputs.safetensors"))
        assert done.exit_code == 0, done.stderr
    with pytest.warns(DeprecationWarning, match="torch.jit.load"):
        traced = torch.jit.load(programs[0])  # type: ignore[no-untyped-call]
    extra = {"modyn.json": ""}
    assert torch.equal(traced(inputs), torch.export.load(programs[1], extra_files=extra).module()(inputs))
    assert json.loads(extra["modyn.json"]) == {"inputs": [{"features": {"shape": [8, 2], "dtype": "float64"}}]}


@pytest.mark.parametrize(
    ("factory", "says"),
    [
        ("nothing", "cannot be imported"),
        (f"{SELF}:nope", "cannot be imported"),
        (f"{SELF}:failing", "it is called without arguments and fails: RuntimeError: no data here"),
        (f"{HERE}:network", "must return a function that builds the module, a tuple of its inputs, and a loss; not a Sequential"),
        (f"{SELF}:failing_step", "a training step of it fails: AttributeError"),
    ],
)
def test_a_probe_says_what_its_factory_lacks(factory: str, says: str) -> None:
    assert says in refused("probe", factory)


def test_a_probe_needs_a_summary_to_compare_with(tmp_path: Path) -> None:
    (tmp_path / "junk").write_text("junk")
    assert "expected the summary of a probe" in refused("probe", f"{HERE}:steady_case", "--against", str(tmp_path / "junk"))
    assert "does not exist" in refused("probe", f"{HERE}:steady_case", "--against", str(tmp_path / "none"), code=2)


@pytest.mark.parametrize("command", ["gc", "export", "probe", "delete"])
def test_what_may_take_long_shows_a_bar_on_a_terminal(
    models: list[str], tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = {
        "gc": [],
        "export": [models[0], str(tmp_path / "m.safetensors")],
        "probe": [f"{HERE}:steady_case"],
        "delete": [models[-1], "--yes"],
    }[command]
    terminal = terminal_of(monkeypatch)
    assert not main(["model", command, *arguments], standalone_mode=False)
    assert command in terminal.getvalue()
    assert "━" in terminal.getvalue()
    assert "━" not in capsys.readouterr().out


@pytest.mark.parametrize("moment", ["soon", "2026-13-01", "0001-01-01T00:00:00+14:00"])
def test_what_is_no_moment_is_wrong_usage(moment: str) -> None:
    assert "is no moment like 2026-03-31" in refused("live", "by_amount", "--at", moment, code=2)
