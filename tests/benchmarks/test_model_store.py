"""The benchmark of the model store: a group runs from end to end and reports its figures; its parts do what they say."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from benchmarks.figures.choosing import TRACE, costs_of, fresh, trained, turn_of
from benchmarks.groups import measured
from benchmarks.measure import Machine
from benchmarks.model_baseline import baseline_load, baseline_save
from benchmarks.model_flows import CLASSES, Recipe, SmallNet, first, flow, standard_flow
from benchmarks.model_setting import Setting, by_both_clocks, folder, in_line, nothing, one, saved
from benchmarks.model_store import main
from benchmarks.report import Figure
from modyn_dagster.model_store import Adaptive, Delta, Prices, Snapshot

ROOT = Path(__file__).resolve().parents[2]


class Colours(nn.Sequential):
    """The mean colour of an image, and a layer."""

    def __init__(self) -> None:
        super().__init__(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 10), nn.Linear(10, CLASSES))


TINY = Recipe(Colours, batch=2, steps=1, pretraining=1)


@pytest.mark.soak("benchmarks")
def test_the_command_writes_figures_with_their_five_fields(tmp_path):
    out = tmp_path / "out.json"
    command = [sys.executable, str(ROOT / "benchmarks/model_store.py"), "--quick", "--only", "G4", "--threads", "1"]
    subprocess.run([*command, "--json", str(out)], check=True, capture_output=True, cwd=tmp_path)
    found = json.loads(out.read_text())
    assert {"G4.fp32", "G4.bf16"} <= set(found)
    assert all(set(figure) == {"value", "unit", "min", "max", "goal"} for figure in found.values())
    assert (found["G4.bf16"]["goal"], found["G4.fp32"]["goal"]) == (0.69, 0.845)


def test_an_unknown_group_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr("sys.argv", ["model_store.py", "--only", "speed"])
    with pytest.raises(SystemExit) as refused:
        main()
    assert refused.value.code == 2
    assert "no group speed" in capsys.readouterr().err


def test_figures_are_written_as_they_come():
    written: list[list[str]] = []

    def two(_: None):
        yield Figure("A", "", one(1), "x")
        assert written == [["A"]]
        yield Figure("B", "", one(2), "x")

    def fails(_: None):
        yield Figure("C", "", one(3), "x")
        raise RuntimeError("the disk is full")

    with pytest.raises(RuntimeError, match="full"):
        measured({"two": two, "fails": fails}, ["two", "fails"], None, lambda found: written.append([f.id for f in found]))
    assert written == [["A"], ["A", "B"], ["A", "B", "C"]]


def test_the_standard_flow_derives_every_model_from_the_right_one():
    places, states = zip(*standard_flow(TINY, lr=0.1, iterations=4), strict=True)
    assert places == (None, 0, 1, 2, 3, 0, 5, 6, 7, 8)
    assert len({tuple(state["2.weight"].flatten().tolist()) for state in states}) == 10


def test_dist_20_has_402_models_and_no_node_trains_on_the_data_of_another():
    places, states = zip(*standard_flow(TINY, lr=0.1, nodes=20, iterations=10), strict=True)
    assert len(states) == 402
    assert [places.count(0), places.count(201)] == [21, 20]
    assert len({tuple(state["2.weight"].flatten().tolist()) for state in states}) == 402


def test_a_flow_is_the_same_however_many_threads_there_are():
    before = torch.get_num_threads()
    found = []
    recipe = Recipe(SmallNet, steps=2, pretraining=1)
    for threads in (1, 2):
        first.cache_clear()
        torch.set_num_threads(threads)
        *_, state = flow(recipe, lr=0.1, updates=1)
        assert torch.get_num_threads() == threads
        found.append(state)
    torch.set_num_threads(before)
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])


def test_only_the_last_layer_moves_where_only_that_is_trained():
    before, after = flow(TINY, lr=0.1, updates=1, only_last=True)
    assert {name for name in before if not torch.equal(before[name], after[name])} == {"3.weight", "3.bias"}


def test_the_conditions_of_a_flow_are_numbers():
    found = TINY.conditions()
    number, what = found["model"]
    assert (number, what) == (40 + 11 * CLASSES, "parameters of Colours")
    assert [found[name][0] for name in ("batch", "steps", "pretraining")] == [2, 1, 1]
    assert found["data"][0] == CLASSES
    assert "36" in found["data"][1]


def test_models_are_saved_against_those_they_derive_from():
    with folder() as store:
        models = [model for model, _ in saved(store, standard_flow(TINY, lr=0.1, iterations=1))]
        assert [store.info(model).base for model in models] == [None, models[0], models[0], models[2]]
        line = [model for model, _ in saved(store, in_line(flow(TINY, lr=0.2, updates=2)))]
        assert [store.info(model).base for model in line] == [None, *line[:-1]]


@pytest.mark.long
def test_only_the_measured_rounds_count_by_either_clock():
    tidied, done = [], []

    def work():
        done.append(1)
        return lambda: tidied.append(1)

    wall, processor = by_both_clocks({"ours": work, "theirs": lambda: nothing}, Machine())
    assert len(done) == len(tidied) == 6
    assert [len(found.runs[name]) for found in (wall, processor) for name in ("ours", "theirs")] == [5, 5, 5, 5]


def test_the_trace_has_forty_saves_of_three_sizes_by_two_updates_by_two_data_and_prices():
    trace = json.loads(TRACE.read_text())
    assert len(trace["saves"]) == 40
    kinds = {(save["parameters"], save["update"], save["batches"]) for save in trace["saves"]}
    sizes = {parameters for parameters, _, _ in kinds}
    assert len(sizes) == 3
    assert {(size, update, n) for size in sizes for update in ("full", "partial") for n in (10, 100)} <= kinds
    assert set(trace["prices"]) == {"store", "save", "recover", "recoveries"}


@pytest.mark.parametrize(("update", "changed"), [("full", 3), ("partial", 1), ("new", 3)])
def test_an_update_of_the_trace_changes_what_it_says(update: str, changed: int):
    base = fresh(3 << 20, seed=0)
    state = trained(base, data={"batches": 0}, seed=1, update=update, relative=0.1)
    assert sum(not torch.equal(base[name], state[name]) for name in base) == changed


def test_the_costs_of_a_save_are_those_of_what_was_chosen():
    prices = Prices(store=1.0, save=0.0, recover=0.0)
    turn = turn_of({"parameters": 200_000, "update": "full", "relative": 1e-3, "batches": 0}, 1)
    delta = Delta(full_model_interval=None)
    found, _ = costs_of(turn, {"delta": delta, "plain": Snapshot(compress=False)}, prices)
    assert 0.8e-3 < found["plain"].wall < 0.81e-3
    assert 0.3e-3 < found["delta"].wall == found["delta"].processor < 0.5e-3
    cheapest, chosen = costs_of(turn, {"adaptive": Adaptive(prices, delta=delta)}, prices)
    assert chosen == "provenance"
    assert cheapest["adaptive"].wall < 1e-5


def test_quick_measures_less():
    full, quick = Setting(), Setting.quick()
    assert (full.iterations, full.chain, full.nodes, full.saves, full.smaller) == (4, 20, (20, 10), 40, 1)
    assert quick.chain < full.chain
    assert quick.saves < full.saves


def test_the_baseline_notices_damage(tmp_path):
    path = tmp_path / "b.pt"
    baseline_save({"a": torch.ones(1000)}, path)
    assert torch.equal(baseline_load(path)["a"], torch.ones(1000))
    content = path.read_bytes()
    place = content.index(torch.ones(8).numpy().tobytes())
    path.write_bytes(content[: place + 3] + b"\1" + content[place + 4 :])
    with pytest.raises(RuntimeError, match=r"a changed|corrupt|checksum"):
        baseline_load(path)
