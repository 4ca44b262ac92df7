"""Checkpoints with a right digest and fingerprint that no training wrote: a line in the log, and a beginning from scratch."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save

from modyn_dagster.training import CheckpointFile
from modyn_dagster.training.checkpoint.file import VERSION
from modyn_dagster.training.states import state_digest

FORGED = {
    "an unknown kind": ["list", [["pickle", "cos\nsystem"]]],
    "a tensor that is missing": ["dict", [["weights", ["tensor", "7"]]]],
    "a list as a key": ["dict", [[["list", []], 1]]],
    "pairs of three": ["dict", [[1, 2, 3]]],
    "pairs of nothing": ["OrderedDict", [None]],
    "letters for bytes": ["bytes", "zz"],
    "a word for a number": ["float", "x"],
    "nothing known": {"state": 1},
}


def forge(path: Path, state: str, tensors: dict[str, torch.Tensor], content: Any, version: str = VERSION) -> None:
    header = {"version": version, "fingerprint": "f", "digest": state_digest(content, tensors), "state": state}
    path.write_bytes(save(tensors, metadata=header))


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_checkpoint_is_ignored_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str) -> None:
    path = tmp_path / "c"
    forge(path, json.dumps(FORGED[name]), {"0": torch.ones(2)}, FORGED[name])
    with caplog.at_level(logging.WARNING):
        assert CheckpointFile(path).load("f") is None
    assert f"{path} cannot be read" in caplog.text


def test_a_checkpoint_nested_without_end_is_ignored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "c"
    forge(path, "[" * 100_000, {"0": torch.ones(2)}, None)
    with caplog.at_level(logging.WARNING):
        assert CheckpointFile(path).load("f") is None
    assert "maximum recursion depth" in caplog.text


def test_a_checkpoint_of_before_ranks_shared_their_masks_begins_the_training_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    content = ["dict", [["n_steps", 4]]]
    forge(tmp_path / "c", json.dumps(content), {}, content, version="2")
    with caplog.at_level(logging.INFO):
        assert CheckpointFile(tmp_path / "c").load("f") is None
    assert "belongs to another training or version of this package" in caplog.text


def test_a_checkpoint_of_the_same_layout_is_read(tmp_path: Path) -> None:
    forge(tmp_path / "c", '["tuple", [1, ["tensor", "0"]]]', {"0": torch.ones(2)}, ["tuple", [1, ["tensor", "0"]]])
    state = CheckpointFile(tmp_path / "c").load("f")
    assert state is not None
    assert (state[0], state[1].tolist()) == (1, [1.0, 1.0])
