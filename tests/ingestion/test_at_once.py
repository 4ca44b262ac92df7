"""Several processes, here threads, that ingest at once."""

from concurrent.futures import ThreadPoolExecutor

from tests.ingestion.world import World, dataset_spec

SPEC = dataset_spec()


def test_a_batch_ingested_by_several_at_once_is_ingested_once(world: World) -> None:
    world.write("a.csv", "time,x,label\n" + "".join(f"2020-01-01,{i},c{i % 3}\n" for i in range(500)))
    world.register_all(SPEC)
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: world.ingest(SPEC, "a"), range(4)))
    assert sorted(result.already_ingested for result in results) == [False, True, True, True]
    assert len(world.rows(SPEC)) == 500


def test_batches_ingested_at_once_share_columns_and_class_names(world: World) -> None:
    for name in "abcd":
        world.write(f"{name}.csv", "time,x,label\n" + "".join(f"2020-01-01,{i},c{(i + ord(name)) % 6}\n" for i in range(300)))
    world.register_all(SPEC)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda name: world.ingest(SPEC, name), "dcba"))
    names = world.dataset(SPEC).class_names
    assert sorted(names) == [f"c{i}" for i in range(6)]
    found = world.reader(SPEC).read(world.keys(SPEC))
    assert found.labels is not None
    expected = [f"c{(i + ord(name)) % 6}" for name in "abcd" for i in range(300)]
    assert [names[label] for label in found.labels] == expected == [names[row[2]] for row in world.rows(SPEC)]
