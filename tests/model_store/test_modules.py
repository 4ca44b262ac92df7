"""Modules as they occur in practice (compiled, data-parallel, quantised, tied), and their export to other systems."""

import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from modyn_dagster.errors import ConfigError, StorageError
from modyn_dagster.model_store import Architecture, Delta, ModelStore, Snapshot
from modyn_dagster.model_store.export import torchscript_without_warnings
from tests.model_store import trainings
from tests.model_store.lineages import moved
from tests.model_store.states import assert_exact

TRAININGS = "tests.model_store.trainings"


@pytest.fixture
def store(tmp_path: Path) -> ModelStore:
    return ModelStore(tmp_path / "models", allow=[TRAININGS])


@pytest.fixture
def process_group(tmp_path: Path) -> Iterator[None]:
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 3), nn.Sequential(nn.BatchNorm1d(3), nn.ReLU()), nn.Linear(3, 2))


def compiled(module: nn.Module) -> nn.Module:
    return torch.compile(module, backend="eager")  # type: ignore[return-value]  # a callable that is a module


def compiled_inside(module: nn.Module) -> nn.Module:
    module[1] = compiled(module[1])  # type: ignore[index, operator]  # it is an nn.Sequential
    return module


WRAPPERS: dict[str, Callable[[nn.Module], nn.Module]] = {
    "compiled": compiled,
    "compiled inside": compiled_inside,
    "distributed": nn.parallel.DistributedDataParallel,
    "compiled and distributed": lambda module: nn.parallel.DistributedDataParallel(compiled(module)),
    "distributed and compiled": lambda module: compiled(nn.parallel.DistributedDataParallel(module)),
    "parallel": nn.DataParallel,
}


@pytest.mark.usefixtures("process_group")
@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
def test_whatever_is_around_a_module_its_model_is_the_same(store: ModelStore, wrap: Callable[[nn.Module], nn.Module]) -> None:
    plain = network()
    expected = {name: tensor.clone() for name, tensor in plain.state_dict().items()}
    model = store.save(plain.state_dict())
    other = network()
    wrapped = wrap(other)
    store.load_into(model, wrapped)
    assert store.save(wrapped.state_dict()) == model
    assert_exact(dict(zip(expected, wrapped.state_dict().values(), strict=True)), expected)
    later = store.save(moved(dict(wrapped.state_dict()), 1), base=model, strategy=Delta())
    assert store.diff(model, later) == [name for name, tensor in expected.items() if tensor.is_floating_point() and tensor.any()]


def test_a_module_called_module_keeps_its_name(store: ModelStore) -> None:
    state = {"module.weight": torch.ones(1), "head.weight": torch.zeros(1)}
    assert_exact(store.load(store.save(state)), state)


def test_a_quantised_module_is_refused_by_name(store: ModelStore) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(4, 3)), {nn.Linear})  # type: ignore[no-untyped-call]  # torch has no type for it
        state = module.state_dict()
    with pytest.raises(StorageError, match=r"0\._packed_params"):
        store.save(state)
    assert store.list() == []


def test_weights_quantised_to_plain_tensors_are_stored(store: ModelStore) -> None:
    state = {
        "weight": torch.arange(-4, 4, dtype=torch.int8),
        "scale": torch.tensor(0.1),
        "weight8": torch.ones(3).to(torch.float8_e4m3fn),
    }
    assert_exact(store.load(store.save(state)), state)


def test_every_format_gives_the_outputs_of_the_module(store: ModelStore, tmp_path: Path) -> None:
    module = trainings.network(5).eval()
    model = store.save(module.state_dict(), model=Architecture(f"{TRAININGS}:network", {"width": 5}))
    changed = store.save(
        moved(dict(module.state_dict()), 1),
        base=model,
        strategy=Delta(),
        model=Architecture(f"{TRAININGS}:network", {"width": 5}),
    )
    inputs = torch.randn(7, 6)
    for each in (model, changed):
        store.load_into(each, module)
        for suffix in (".pt", ".pt2", ".safetensors"):
            store.export(each, tmp_path / f"{each}{suffix}", inputs=(inputs,))
        with torchscript_without_warnings():
            script = torch.jit.load(tmp_path / f"{each}.pt")  # type: ignore[no-untyped-call]  # torch has no type for it
        assert torch.equal(script(inputs), module(inputs))
        assert torch.equal(torch.export.load(tmp_path / f"{each}.pt2").module()(inputs), module(inputs))
        assert_exact(dict(sorted(load_file(tmp_path / f"{each}.safetensors").items())), dict(sorted(module.state_dict().items())))
    assert not list(tmp_path.glob(".*.tmp"))


@pytest.mark.soak("laws-models")
@pytest.mark.process
def test_a_system_without_this_package_serves_the_export(store: ModelStore, tmp_path: Path) -> None:
    module = trainings.network(5).eval()
    model = store.save(module.state_dict(), model=Architecture(f"{TRAININGS}:network", {"width": 5}))
    inputs = torch.linspace(-1, 1, 12).reshape(2, 6)
    store.export(model, tmp_path / "m.pt2", inputs=(inputs,))
    program = """
import sys, torch
sys.modules["modyn_dagster"] = None
print(torch.export.load(sys.argv[1]).module()(torch.linspace(-1, 1, 12).reshape(2, 6)).tolist())
"""
    command = [sys.executable, "-I", "-c", program, str(tmp_path / "m.pt2")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.strip() == str(module(inputs).tolist())


def test_safetensors_have_every_dtype_they_know_and_no_others(store: ModelStore, tmp_path: Path) -> None:
    shared = torch.randn(2, 3)
    state: dict[str, Tensor] = {
        "half": torch.ones(2).half(),
        "bf16": torch.ones(2).bfloat16(),
        "fp8": torch.ones(2).to(torch.float8_e5m2),
        "flag": torch.tensor([True, False]),
        "scalar": torch.tensor(1.5, dtype=torch.float64),
        "empty": torch.ones(0, 3),
        "one": shared,
        "tied": shared,
    }
    path = tmp_path / "m.safetensors"
    store.export(store.save(state, strategy=Snapshot(compress=True)), path)
    with safe_open(path, "pt") as file:
        assert_exact({name: file.get_tensor(name) for name in state}, state)
    odd = store.save({"odd": torch.ones(2, dtype=torch.complex128)})
    with pytest.raises(ConfigError, match=r"odd.*safetensors files do not have"):
        store.export(odd, tmp_path / "odd.safetensors")
    assert not (tmp_path / "odd.safetensors").exists()


@pytest.mark.parametrize("suffix", [".pt", ".pt2"])
def test_what_an_export_lacks_is_named(store: ModelStore, tmp_path: Path, suffix: str) -> None:
    model = store.save(trainings.network().state_dict())
    with pytest.raises(ConfigError, match="saved without its architecture"):
        store.export(model, tmp_path / f"m{suffix}", inputs=(torch.ones(1, 6),))
    other = store.save(trainings.network(3).state_dict(), model=Architecture(f"{TRAININGS}:network", {"width": 3}))
    with pytest.raises(ConfigError, match="example inputs are needed"):
        store.export(other, tmp_path / f"m{suffix}")
    assert not list(tmp_path.glob("m.*"))


@pytest.mark.parametrize("suffix", [".pt", ".pt2"])
@pytest.mark.parametrize(
    ("model", "n_inputs", "field"),
    [
        (Architecture(f"{TRAININGS}:network"), 7, "inputs"),
        (Architecture(f"{TRAININGS}:network", {"height": 3}), 6, "model"),
        (Architecture(f"{TRAININGS}:steady_case"), 6, "model"),
    ],
    ids=["inputs", "arguments", "no module"],
)
def test_an_export_that_fails_names_what_is_wrong_and_leaves_the_file_of_before(
    tmp_path: Path, suffix: str, model: Architecture, n_inputs: int, field: str
) -> None:
    store = ModelStore(tmp_path / "models", allow=[TRAININGS])
    saved = store.save(trainings.network().state_dict(), model=model)
    path = tmp_path / f"model{suffix}"
    path.write_bytes(b"of before")
    with pytest.raises(ConfigError, match=f"export: {field}: ") as caught:
        store.export(saved, path, inputs=(torch.ones(1, n_inputs),))
    assert caught.value.field == field
    assert path.read_bytes() == b"of before"
    assert [each.name for each in tmp_path.iterdir() if each.is_file()] == [path.name]
