"""YAML files of people: what PyYAML reads is read alike, and everything out of bounds is one sentence."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from modyn_dagster.cli import main
from modyn_dagster.errors import ConfigError
from modyn_dagster.values.yaml_values import MAX_BYTES, MAX_DEPTH, MAX_DIGITS, MAX_NODES, read_yaml

#: But for manifests, which other programs read.
EXAMPLES = sorted(path for path in (Path(__file__).parents[2] / "examples").rglob("*.yaml") if path.parent.name != "serving")
LAUGHS = "".join(f"{after}: &{after} [{', '.join([f'*{before}'] * 10)}]\n" for before, after in zip("abcdefg", "bcdefgh"))
BAD: dict[str, tuple[str | bytes, str]] = {
    "twice": ("training:\n  epochs: 1\nname: x\ntraining:\n  epochs: 2\n", "line 4: the key stands twice .* in line 1"),
    "twice inside": ("a: {b: 1, c: 2, b: 3}", "line 1: the key stands twice"),
    "twice, quoted": ('a: 1\n"a": 2\n', "line 2: the key stands twice"),
    "deep flow": ("[" * 100_000, f"deeper than {MAX_DEPTH}"),
    "deep mapping": ("{a: " * 50_000, f"deeper than {MAX_DEPTH}"),
    "deep block": ("- " * 10_000 + "a", f"deeper than {MAX_DEPTH}"),
    "integer": ("n: " + "9" * 5_000, f"number has more than {MAX_DIGITS}"),
    "hexadecimal": ("n: 0x" + "f" * 200_000, f"number has more than {MAX_DIGITS}"),
    "base 60": ("n: 1" + ":59" * 5_000, f"number has more than {MAX_DIGITS}"),
    "float": ("n: 1." + "9" * 5_000, f"number has more than {MAX_DIGITS}"),
    "comment": ("#" * 20_000_000, f"larger than {MAX_BYTES:,} bytes"),
    "nodes": ("[" + "a," * 50_000 + "]", f"more than {MAX_NODES:,} values"),
    "laughs": ("a: &a [1, 2, 3]\n" + LAUGHS, f"more than {MAX_NODES:,} values"),
    "circle": ("a: &a [*a]", "a value that it is part of"),
    "no date": ("day: 2024-13-45", "is not valid YAML: month must be in 1..12"),
    "object": ("!!python/object/apply:os.system [id]", "is not valid YAML: could not determine a constructor"),
    "latin": (b"name: caf\xe9", "is not UTF-8"),
    "two documents": ("a: 1\n---\nb: 2\n", "is not valid YAML"),
    "null": ("a: \0", "is not valid YAML"),
}


def written(folder: Path, content: str | bytes) -> Path:
    path = folder / "file.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize(("content", "message"), BAD.values(), ids=BAD)
def test_a_file_out_of_bounds_is_named_with_line_and_limit(content: str | bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        read_yaml(written(tmp_path, content))
    assert caught.value.source == str(tmp_path / "file.yaml")
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("name", ["deep flow", "integer", "comment", "twice"])
def test_a_command_says_it_in_one_sentence(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content, _ = BAD[name]
    (tmp_path / "datasets").mkdir()
    (tmp_path / "pipelines").mkdir()
    written(tmp_path / "pipelines", content)
    monkeypatch.setenv("MODYN_PROJECT", str(tmp_path))
    for command in (["check"], ["pipeline", "status"]):
        result = CliRunner().invoke(main, command)
        assert result.exit_code == 1
        assert "file.yaml" in result.output
        assert "Traceback" not in result.output
        assert isinstance(result.exception, SystemExit)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_the_examples_read_as_before(path: Path) -> None:
    assert read_yaml(path) == yaml.safe_load(path.read_text())


_scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.dates()
_values = st.recursive(
    _scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4), max_leaves=20
)


@given(value=_values, flow=st.booleans())
def test_values_come_back_as_they_were_written(value: Any, flow: bool, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.getbasetemp()
    # Escaped: PyYAML writes U+0085 as a line break otherwise.
    assert read_yaml(written(folder, yaml.safe_dump(value, default_flow_style=flow))) == value


@given(text=st.text(st.sampled_from(list("a1&*<:-[]{},'\"#|>!%@ \n?0x.")), max_size=60))
def test_any_text_is_read_as_pyyaml_does_or_refused(text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = written(tmp_path_factory.getbasetemp(), text)
    try:
        value = read_yaml(path)
    except ConfigError:
        return
    assert repr(value) == repr(yaml.safe_load(text))


def test_merged_keys_and_aliases_stay(tmp_path: Path) -> None:
    content = "base: &base {a: 1, b: 2}\nmore: {<<: *base, b: 3}\nagain: *base\n"
    assert read_yaml(written(tmp_path, content)) == {
        "base": {"a": 1, "b": 2},
        "more": {"a": 1, "b": 3},
        "again": {"a": 1, "b": 2},
    }
