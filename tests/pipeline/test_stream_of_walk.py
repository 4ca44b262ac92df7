"""Streams of a view, made longer batch by batch."""

from modyn_dagster.keys import ORIGIN
from modyn_dagster.pipeline.training_stream import longer_stream, training_stream
from tests.projects.tiny import DATASET, amount


def test_a_stream_made_longer_is_the_stream_of_all_batches(world_of):
    world = world_of(amount())
    world.deliver(range(5))
    view = world.platform.view(DATASET)
    for after in range(5):
        for until in range(after, 5):
            longer = longer_stream(training_stream(view.up_to(after), ORIGIN), view, after, until)
            whole = training_stream(view.up_to(until), ORIGIN)
            assert len(longer) == len(whole)
            assert longer.total(view.last_key_of(until)) == whole.total(view.last_key_of(until))
            assert [longer.nth_after(ORIGIN, n) for n in (1, 41, 200)] == [whole.nth_after(ORIGIN, n) for n in (1, 41, 200)]
