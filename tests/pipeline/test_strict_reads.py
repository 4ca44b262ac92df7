"""``MODYN_STRICT_READS``: changed source bytes stop a run instead of giving another digest."""

from dataclasses import replace

import pytest

from modyn_dagster.errors import ConfigError, RunError
from modyn_dagster.settings import Settings
from tests.pipeline.integrity.homes import flip
from tests.projects.tiny import amount


@pytest.mark.soak("replays")
def test_changed_source_bytes_stop_a_strict_replay_and_only_that(world_of) -> None:
    world = world_of(amount(every=40))
    world.deliver([0, 1])
    sound = world.replay("by_amount", name="sound")
    assert sound
    path = world.folder / "data" / "day_01.csv"
    # A digit of a coordinate becomes another one.
    flip(path, path.read_text().index(",", 60) + 4, bit=1)
    world.settings = replace(world.settings, strict_reads=True)
    world.reload()
    with pytest.raises(RunError, match=r"day_01.csv.*samples \d+ to \d+ of batch 1; restore the file from a backup"):
        world.replay("by_amount", name="strict")
    world.settings = replace(world.settings, strict_reads=False)
    world.reload()
    assert world.replay("by_amount", name="default")


def test_the_setting_reaches_child_processes_and_is_true_or_false() -> None:
    assert not Settings.from_environment({}).strict_reads
    strict = Settings.from_environment({"MODYN_STRICT_READS": "true"})
    assert strict.strict_reads
    assert Settings.from_environment(strict.environment()).strict_reads
    with pytest.raises(ConfigError, match="MODYN_STRICT_READS"):
        Settings.from_environment({"MODYN_STRICT_READS": "yes"})
