"""Devices that specs name: which are accepted, and that the number of a GPU is no part of a run's identity."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from modyn_dagster.spec.learning.device import without_number
from modyn_dagster.spec.load import parse_spec, spec_hash
from modyn_dagster.spec.pipeline import PipelineSpec
from modyn_dagster.spec.training import TrainingSpec
from modyn_dagster.spec.triggers.drift import FeaturesSpec
from modyn_dagster.training.checkpoint.checkpointer import fingerprint
from modyn_dagster.training.data import Task
from tests.projects.tiny import amount, triggered
from tests.training.table import spec_of


def hash_of(content: dict[str, Any]) -> str:
    return spec_hash(parse_spec(content, PipelineSpec, source="p"))


def on(device: str) -> dict[str, Any]:
    content = amount()
    return content | {"training": content["training"] | {"device": device}}


@pytest.mark.parametrize("device", ["cpu", "cuda", "auto", "cuda:0", "cuda:1", "cuda:127"])
def test_devices_by_kind_and_number_are_accepted(device: str) -> None:
    assert spec_of(device=device).device == FeaturesSpec(device=device).device == device


@pytest.mark.parametrize(
    "device", ["gpu", "cuda:", "cuda:-1", "cuda:x", "CUDA", "cpu:0", "auto:1", "cuda:0 ", "cuda:1000", "mps"]
)
def test_other_words_are_refused(device: str) -> None:
    with pytest.raises(ValidationError, match="cpu"):
        TrainingSpec.model_validate({"model": {"name": "logistic_regression"}, "device": device})


def test_a_run_is_the_same_on_every_gpu_and_another_one_on_the_processor() -> None:
    kinds = [hash_of(on(device)) for device in ("cpu", "cuda", "auto")]
    assert len(set(kinds)) == 3
    assert hash_of(on("cuda:0")) == hash_of(on("cuda:3")) == kinds[1]


def test_the_device_of_a_drift_trigger_is_treated_alike() -> None:
    def drifting(device: str) -> str:
        trigger = {
            "kind": "drift",
            "every": 30,
            "windows": {"by": "amount", "reference": 30, "current": 30},
            "metrics": {"mmd": {"metric": "mmd"}},
            "features": {"device": device},
            "decision": {"rule": "p_value", "alpha": 0.01},
        }
        return hash_of(triggered("drifting", trigger))

    assert drifting("cuda:2") == drifting("cuda") != drifting("cpu")


def test_a_checkpoint_goes_on_on_another_gpu() -> None:
    def printed(device: str) -> str:
        return fingerprint(spec_of(device=device), {}, None, Task("class"), seed=1, surroundings={})

    assert printed("cuda:0") == printed("cuda:1") == printed("cuda") != printed("cpu")


def test_settings_of_user_code_keep_their_words() -> None:
    content = {"loss": {"factory": "a:b", "config": {"device": "cuda:1"}}, "device": "cuda:1"}
    assert without_number(content) == {"loss": content["loss"], "device": "cuda"}


JSON = st.recursive(
    st.none() | st.integers() | st.sampled_from(["cpu", "cuda", "auto", "cuda:x", "words"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["device", "config", "features"]), inner),
    max_leaves=12,
)


@given(JSON)
def test_content_without_a_numbered_gpu_stays_as_it_is(content: Any) -> None:
    assert without_number(content) == content
