"""`modyn-dagster model`: every command on a small store."""

import json
from datetime import timedelta
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result
from safetensors.torch import load_file, save_file

from modyn_dagster.catalog.results.models import list_models
from modyn_dagster.catalog.results.promotions import live_model
from modyn_dagster.cli import main
from modyn_dagster.model_store import Architecture, Delta, ModelStore
from modyn_dagster.model_store.export import torchscript_without_warnings
from modyn_dagster.model_store.probe.recording import summarise
from modyn_dagster.model_store.probe.report import Summary
from modyn_dagster.settings import Settings
from tests.model_store import trainings
from tests.model_store.states import assert_exact
from tests.pipeline.world import make_world
from tests.projects.tiny import amount
from tests.terminal import terminal_of

HERE = "tests.model_store.trainings"


@pytest.fixture
def store(home: Path, monkeypatch: pytest.MonkeyPatch) -> ModelStore:
    """The store of the project in the environment, with three models: one derives from the other two from the first."""
    monkeypatch.setenv("MODYN_HOME", str(home))
    monkeypatch.setenv("COLUMNS", "200")
    return ModelStore(home / "models")


@pytest.fixture
def models(store: ModelStore) -> list[str]:
    first = dict(trainings.train(None, data=1, seed=0))
    base = store.save(first, model=Architecture(f"{HERE}:network", {"width": 8}))
    children = [store.save(first | {name: first[name] + n}, base=base, strategy=Delta()) for n, name in enumerate(first, 1)]
    return [base, *children]


def model(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["model", *arguments])


def test_list_shows_every_model_with_its_strategy_base_and_bytes(store: ModelStore, models: list[str]) -> None:
    result = model("list")
    assert result.exit_code == 0, result.stderr
    for each in models:
        assert each[:12] in result.stdout
    assert f"{len(models)} models, " in result.stdout
    rows = json.loads(model("list", "--json").stdout)
    assert {row["id"]: (row["strategy"], row["base"], row["n_bytes"]) for row in rows} == {
        each: (store.info(each).strategy, store.info(each).base, store.size(each)) for each in models
    }


def test_show_tells_why_a_model_is_stored_as_it_is(store: ModelStore, models: list[str]) -> None:
    text = model("show", models[1][:20]).stdout
    assert store.info(models[1]).reason in text
    shown = json.loads(model("show", models[0], "--json").stdout)
    assert shown["architecture"]["factory"] == f"{HERE}:network"
    assert shown["environment"]["threads"] == torch.get_num_threads()


def test_tree_puts_models_below_what_they_derive_from(models: list[str]) -> None:
    lines = model("tree").stdout.splitlines()
    assert lines[0].startswith(f"{models[0][:12]} ")
    assert sorted(line[3:15] for line in lines[1:]) == sorted(each[:12] for each in models[1:])
    assert [line[:3] for line in lines[1:]] == ["├─ "] * (len(models) - 2) + ["└─ "]


def test_diff_names_the_layers_that_differ(store: ModelStore, models: list[str]) -> None:
    expected = list(store.diff(models[0], models[1]))
    assert json.loads(model("diff", models[0], models[1], "--json").stdout) == expected
    assert len(expected) == 1
    result = model("diff", models[0], models[1])
    assert expected[0] in result.stdout
    assert "1 of 4 tensors differ" in result.stdout


def test_verify_names_the_damage_and_fails(store: ModelStore, models: list[str]) -> None:
    sound = model("verify")
    assert (sound.exit_code, sound.stdout) == (0, f"{len(models)} models read, 0 damaged\n")
    path = store.info(models[0]).path
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    damaged = model("verify", models[0][:16])
    assert damaged.exit_code == 1
    assert "tensor '" in damaged.stderr
    assert damaged.stdout == "1 models read, 1 damaged\n"


def test_verify_shows_a_bar_on_a_terminal(models: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert "verify" not in model("verify").stderr
    terminal = terminal_of(monkeypatch)
    assert not main(["model", "verify"], standalone_mode=False)
    assert f"{len(models)}/{len(models)}" in terminal.getvalue()
    assert "verify" in terminal.getvalue()


def test_a_name_that_leads_to_no_file_hides_no_model(store: ModelStore, models: list[str]) -> None:
    (store.root / "ab").mkdir(exist_ok=True)
    (store.root / "ab" / f"ab{'0' * 62}.pack").symlink_to("nowhere")
    for command in (["list"], ["tree"], ["delete", models[1], "--yes"]):
        result = model(*command)
        assert result.exit_code == 0, result.stderr
    listed = model("list")
    assert [each[:12] in listed.stdout for each in models] == [each != models[1] for each in models]
    assert f"damaged: {store.root}: no model 'ab" in listed.stderr
    assert model("verify").exit_code == 1


def test_gc_says_what_it_removed(store: ModelStore, models: list[str]) -> None:
    left = store.root / models[0][:2] / ".killed.tmp"
    left.write_bytes(b"half")
    result = model("gc")
    assert result.stdout.splitlines() == [str(left), "1 files removed"]
    assert store.verify() == []


def test_export_writes_what_other_systems_load(models: list[str], tmp_path: Path) -> None:
    exported, inputs = tmp_path / "m.safetensors", tmp_path / "inputs.safetensors"
    assert model("export", models[0], str(exported)).exit_code == 0
    assert list(load_file(exported)) == sorted(trainings.network().state_dict())
    save_file({"0": torch.randn(2, 6)}, inputs)
    traced = ("export", models[0], str(tmp_path / "m.pt"), "--inputs", str(inputs), "--positional")
    refused = model(*traced)
    assert refused.exit_code == 1
    assert f"{HERE}:network" in refused.stderr
    result = model(*traced, "--allow", HERE)
    assert result.exit_code == 0, result.stderr
    with torchscript_without_warnings():
        program = torch.jit.load(tmp_path / "m.pt")  # type: ignore[no-untyped-call]  # torch has no type for it
    assert program(load_file(inputs)["0"]).shape == (2, 2)


def test_another_store_may_be_named_and_a_model_must_be_named_well(models: list[str], tmp_path: Path) -> None:
    other = ModelStore(tmp_path / "other")
    only = other.save({"w": torch.ones(3)})
    assert only[:12] in model("list", "--store", str(tmp_path / "other")).stdout
    for unknown in ("fffff", "../../etc", ""):
        result = model("show", unknown, "--store", str(tmp_path / "other"))
        assert result.exit_code == 1
        assert "no model" in result.stderr
    assert other.list() == [only]


def test_a_store_may_be_a_url(models: list[str], store: ModelStore) -> None:
    remote = ModelStore("memory://models/of_the_command_line")
    only = remote.save(store.load(models[0]))
    assert json.loads(model("list", "--store", str(remote.root), "--json").stdout)[0]["id"] == only
    assert model("verify", "--store", str(remote.root)).stdout == "1 models read, 0 damaged\n"
    assert model("delete", only[:8], "--store", str(remote.root), "--yes").exit_code == 0
    assert remote.list() == []


def test_an_empty_store_is_no_error(store: ModelStore) -> None:
    assert "0 models" in model("list").stdout
    assert model("tree").stdout == ""
    assert model("verify").stdout == "0 models read, 0 damaged\n"
    assert model("gc").stdout == "0 files removed\n"


def test_probe_finds_a_repeatable_model_safe_and_names_what_is_not() -> None:
    safe = model("probe", f"{HERE}:steady_case")
    assert (safe.exit_code, safe.stdout) == (0, "every bit is the same: provenance is safe for this model\n")
    unsafe = model("probe", f"{HERE}:unsteady_case")
    assert unsafe.exit_code == 1
    assert "the first difference is in the outputs of 1 (Unsteady), call 0 in the forward pass" in unsafe.stdout
    assert "DIFFERENT" in unsafe.stdout


def test_probe_compares_with_a_summary_from_another_machine(tmp_path: Path) -> None:
    path = tmp_path / "there.json"
    assert model("probe", f"{HERE}:steady_case", "--save", str(path), "--threads", "1").exit_code == 0
    content = json.loads(path.read_text())
    content["environment"]["processor"] = "another"
    path.write_text(json.dumps(content))
    same = model("probe", f"{HERE}:steady_case", "--against", str(path), "--threads", "1", "--all")
    assert same.exit_code == 0, same.stdout
    assert "provenance is safe for this model (other environments: processor: another there, " in same.stdout
    assert "Linear" in same.stdout
    other = model("probe", f"{HERE}:steady_case", "--against", str(path), "--threads", "1", "--seed", "1")
    assert other.exit_code == 1
    wrong = model("probe", f"{HERE}:unsteady_case", "--against", str(path))
    assert wrong.exit_code == 1
    assert "call different layers" in wrong.stderr


def test_a_saved_summary_is_what_the_library_saves(tmp_path: Path) -> None:
    path = tmp_path / "there.json"
    model("probe", f"{HERE}:steady_case", "--save", str(path))
    build, inputs, loss = trainings.steady_case()
    assert Summary.load(path).calls == summarise(build, inputs, loss).calls


def test_delete_refuses_or_rebases_what_others_need(store: ModelStore, models: list[str]) -> None:
    kept = {each: store.load(each) for each in models[1:]}
    refused = model("delete", models[0], "--yes")
    assert refused.exit_code == 1
    assert "pass rebase=True" in refused.stderr or "--rebase" in refused.stderr
    assert sorted(models) == store.list()
    asked = CliRunner().invoke(main, ["model", "delete", models[0][:12], "--rebase"], input="n\n")
    assert (asked.exit_code, sorted(models)) == (1, store.list())
    assert f"{models[0]}: " in asked.stdout
    done = model("delete", models[0][:12], "--rebase", "--yes")
    assert done.exit_code == 0, done.stderr
    assert "deleted, 4 models stored again; the store is " in done.stdout
    assert store.list() == sorted(kept)
    for each, state in kept.items():
        assert_exact(store.load(each), state)
    assert model("delete", models[0], "--yes").exit_code == 1


def test_live_names_the_model_of_any_moment(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = make_world(settings, tmp_path / "project", [amount(every=40)])
    for name, value in world.settings.environment().items():
        monkeypatch.setenv(name, value)
    none = model("live", "by_amount")
    assert none.exit_code == 1
    assert "by_amount had no live model at" in none.stderr
    world.deliver([0, 1])
    world.live_until_idle("by_amount")
    with world.platform.transaction() as conn:
        first, second, *_ = list_models(conn, world.run("by_amount", "live").id)
        newest = list_models(conn, world.run("by_amount", "live").id)[-1]
        assert [live_model(conn, "by_amount", each.created_at) for each in (first, second)] == [first, second]
    world.close()
    shown = json.loads(model("live", "by_amount", "--json").stdout)
    assert shown["model"] == newest.hash
    assert shown["live_from"] == newest.created_at.isoformat()
    refused = model("delete", newest.hash, "--yes")
    assert refused.exit_code == 1
    assert f"{newest.hash} is the live model of pipeline by_amount" in refused.stderr
    before = f"{first.created_at - timedelta(days=1):%Y-%m-%d %H:%M:%S}"
    assert "had no live model at " + before in model("live", "by_amount", "--at", before).stderr
    after = f"{newest.created_at + timedelta(days=1):%Y-%m-%d %H:%M:%S}"
    assert f"model: {newest.hash}\ntrigger: " in model("live", "by_amount", "--at", after).stdout
    assert model("live", "nobody").exit_code == 1
