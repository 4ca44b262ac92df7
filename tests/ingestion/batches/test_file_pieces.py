"""One file per sample: labels from a sidecar, a manifest or the folder name; small files packed."""

from typing import Any

import numpy as np
import pytest

from modyn_dagster.errors import CorruptFile, DataError
from tests.ingestion.world import World, dataset_spec

FILES = {"kind": "files", "suffixes": [".bin"]}
BY_NAME = {"source": "file_name", "pattern": r"_(?P<time>\d{8})", "format": "%Y%m%d"}


def spec_of(label: Any, **fields: Any) -> Any:
    content: dict[str, Any] = {"format": FILES, "batches": {"kind": "directory"}, "time": BY_NAME, "label": label}
    return dataset_spec(**content | fields)


FOLDER = {"from": {"source": "folder"}}
SIDECAR = {"from": {"source": "sidecar", "suffix": ".txt"}}


def read(world: World, spec: Any) -> tuple[list[bytes], list[Any]]:
    found = world.reader(spec).read(world.keys(spec))
    assert found.blobs is not None
    assert dict(found.columns) == {}
    labels = found.targets if found.labels is None else found.labels
    assert labels is not None
    return list(found.blobs), labels.tolist()


def test_folders_are_classes(world: World) -> None:
    spec = spec_of(FOLDER)
    for name in ("dog/a_20200103", "cat/b_20200101", "dog/c_20200102"):
        world.write(f"one/{name}.bin", name)
    world.write("one/dog/notes.txt", "no sample")
    world.write("one/_READY", "")
    world.run_import(spec)
    assert read(world, spec) == ([b"cat/b_20200101", b"dog/c_20200102", b"dog/a_20200103"], [0, 1, 1])
    assert (world.dataset(spec).class_names, world.dataset(spec).columns) == (("cat", "dog"), ())


def test_integers_stay_integers_and_names_stay_names_in_later_batches(world: World) -> None:
    for kind, first, second in (("int", "4", "x"), ("str", "x", "4")):
        spec = spec_of(FOLDER, name=kind)
        root = f"{world.root}/{kind}"
        for batch, label in (("1", first), ("2", second)):
            world.write(f"{kind}/{batch}/{label}/a_20200101.bin", "a")
            world.write(f"{kind}/{batch}/_READY", "")
        failed = world.run_import(spec, root=root).failed
        assert [str(error) for _, error in failed] == (
            ["2/x/a_20200101.bin: the label 'x' is not an integer"] if kind == "int" else []
        )
    assert [row[2] for row in world.rows(spec_of(FOLDER, name="int"))] == [4]
    assert [row[2] for row in world.rows(spec_of(FOLDER, name="str"))] == [0, 1]


def test_sidecars_hold_labels_or_targets(world: World) -> None:
    for i in range(3):
        world.write(f"d/{i}_2020010{i + 1}.bin", f"{i}" * i or "zero")
        world.write(f"d/{i}_2020010{i + 1}.txt", f" {i}.5\n")
    world.write("d/_READY", "")
    spec = spec_of(SIDECAR | {"kind": "target"})
    world.run_import(spec)
    assert read(world, spec) == ([b"zero", b"1", b"22"], [0.5, 1.5, 2.5])
    assert [row[3] for row in world.rows(spec)] == [0.5, 1.5, 2.5]


def test_a_manifest_holds_labels_and_times_of_files_anywhere_in_the_root(world: World) -> None:
    label = {"from": {"source": "manifest", "column": "class"}, "n_classes": 3}
    spec = spec_of(label, batches={"kind": "manifest"}, time={"source": "manifest"})
    world.write("x/1.bin", "one")
    world.write("y/2.bin", "two")
    world.write("m.manifest.csv", "class,file,time\n2,x/1.bin,2020-01-02\n0,y/2.bin,2020-01-01T12:00Z\n")
    world.write("m.manifest.csv_READY", "")
    world.run_import(spec)
    assert read(world, spec) == ([b"two", b"one"], [0, 2])


def test_small_files_are_packed_and_not_needed_afterwards_large_ones_stay(world: World) -> None:
    spec = spec_of(None, format=FILES | {"packed_bytes": 10})
    contents = [b"small", b"l" * 11, b"exactly_10", b"L" * 20]
    for i, content in enumerate(contents):
        world.write(f"d/{i}_2020010{9 - i}.bin", content)
    world.write("d/_READY", "")
    world.run_import(spec)
    assert world.files()["shards/d/0.bin"] == b"exactly_10small"
    for i in (0, 2):
        (world.root / f"d/{i}_2020010{9 - i}.bin").unlink()
    assert world.reader(spec).read_blobs(world.keys(spec)) == contents[::-1]
    assert world.ingest(spec, "d").already_ingested
    (world.root / "d/1_20200108.bin").write_bytes(b"x" * 11)
    with pytest.raises(CorruptFile, match="as when it was ingested"):
        world.reader(spec).read(world.keys(spec))
    assert world.reader(spec).read_blobs(world.keys(spec)[[1]]) == [b"exactly_10"]


def test_a_shard_that_was_damaged_is_refused(world: World) -> None:
    spec = spec_of(None)
    world.write("d/a_20200101.bin", "abcdef")
    world.write("d/_READY", "")
    world.run_import(spec)
    (world.home / "shards/d/0.bin").write_bytes(b"abcdeX")
    with pytest.raises(CorruptFile, match=r"shards/d/0\.bin: expected checksum"):
        world.reader(spec).read(world.keys(spec))


def test_many_files_are_read_in_any_order(world: World) -> None:
    spec = spec_of(None)
    rng = np.random.default_rng(0)
    contents = [rng.bytes(int(size)) for size in rng.integers(1, 500, 60)]
    for i, content in enumerate(contents):
        world.write(f"d/{i}_{20200101 + i % 20}.bin", content)
    world.write("d/_READY", "")
    world.run_import(spec)
    in_key_order = [contents[i] for i in sorted(range(60), key=lambda i: (i % 20, i))]
    wanted = rng.integers(0, 60, 200)
    assert world.reader(spec).read_blobs(world.keys(spec)[wanted]) == [in_key_order[i] for i in wanted]


BAD: dict[str, tuple[Any, dict[str, str], str]] = {
    "empty file": (FOLDER, {"d/x/a_20200101.bin": ""}, "d/x/a_20200101.bin: the file is empty"),
    "no files": (FOLDER, {"d/x/a_20200101.txt": "x"}, "d: the directory holds no files of samples"),
    "no time in the name": (FOLDER, {"d/x/a.bin": "x"}, "d/x/a.bin: the file name does not match"),
    "bad time in the name": (
        FOLDER,
        {"d/x/a_20201301.bin": "x"},
        "d/x/a_20201301.bin: in the file name the timestamp '20201301' does not match",
    ),
    "no sidecar": (
        SIDECAR,
        {"d/a_20200101.bin": "x"},
        "d/a_20200101.bin: the label is missing: 'd/a_20200101.txt' does not exist",
    ),
    "empty sidecar": (SIDECAR, {"d/a_20200101.bin": "x", "d/a_20200101.txt": " \n"}, "d/a_20200101.bin: the label is missing"),
    "unknown class": (FOLDER | {"classes": ["y"]}, {"d/x/a_20200101.bin": "x"}, "d/x/a_20200101.bin: unknown class 'x'"),
}


def test_every_bad_directory_fails_naming_the_file(world: World) -> None:
    for number, (label, files, message) in enumerate(BAD.values()):
        spec = spec_of(label, name=f"d{number}")
        root = f"{world.root}/{number}"
        for path, content in files.items():
            world.write(f"{number}/{path}", content)
        world.write(f"{number}/d/_READY", "")
        [(_, error)] = world.run_import(spec, root=root).failed
        assert message in str(error)


def test_a_sidecar_that_is_not_text_is_named(world: World) -> None:
    world.write("d/a_20200101.bin", "x")
    world.write("d/a_20200101.txt", b"\xff")
    world.write("d/_READY", "")
    [(_, error)] = world.run_import(spec_of(SIDECAR)).failed
    assert "d/a_20200101.txt: the label is not UTF-8" in str(error)


def test_a_missing_sidecar_that_arrives_mends_the_batch(world: World) -> None:
    spec = spec_of(SIDECAR)
    world.write("d/a_20200101.bin", "x")
    world.write("d/_READY", "")
    world.run_import(spec)
    before = world.look(spec)
    assert before.registered == []
    world.write("d/a_20200101.txt", "7")
    changed = world.look(spec, before)
    assert (changed.registered, changed.waiting) == ([], ["d"])
    assert [batch.partition_key for batch in world.look(spec, changed).registered] == ["d~2"]
    assert world.ingest(spec, "d~2").label_counts == {"7": 1}


MANIFEST = {"from": {"source": "manifest"}}
BAD_MANIFESTS: dict[str, tuple[str, str]] = {
    "outside the root": (
        "file,label\n../secret.bin,1\n",
        "row 1, column 'file': '../secret.bin' is not a path below the dataset's root",
    ),
    "absolute": ("file,label\n/etc/passwd,1\n", "row 1, column 'file': '/etc/passwd' is not a path below the dataset's root"),
    "empty path": ('file,label\n"",1\n', "row 1, column 'file': '' is not a path below the dataset's root"),
    "missing file": ("file,label\nok_20200101.bin,1\nno.bin,1\n", "row 2, column 'file': 'no.bin' does not exist"),
    "a directory": ("file,label\nsub,1\n", "row 1, column 'file': 'sub' is a directory, expected a file"),
    "leaving symlink": (
        "file,label\nlink_20200101.bin,1\n",
        "row 1, column 'file': 'link_20200101.bin' lies outside the dataset's root",
    ),
    "twice": (
        "file,label\nok_20200101.bin,1\n./ok_20200101.bin,1\n",
        "row 2, column 'file': './ok_20200101.bin' is listed twice, first in row 1",
    ),
    "missing label": ("file,label\nok_20200101.bin, \n", "row 1, column 'label': the label is missing"),
    "no column file": ("path,label\nok_20200101.bin,1\n", "column 'file': the manifest has no such column; it has path, label"),
    "no column label": ("file\nok_20200101.bin\n", "column 'label': the manifest has no such column; it has file"),
    "ragged": ("file,label\nok_20200101.bin\n", "row 1: the row has 1 fields, the header has 2"),
    "empty": ("", "the file is empty"),
}


def test_every_bad_manifest_fails_naming_its_row_and_column(world: World) -> None:
    spec = spec_of(MANIFEST, batches={"kind": "manifest"})
    world.write("ok_20200101.bin", "x")
    world.write("sub/x", "x")
    (world.root.parent / "secret.bin").write_text("secret")
    (world.root / "link_20200101.bin").symlink_to(world.root.parent / "secret.bin")
    for number, (content, _) in enumerate(BAD_MANIFESTS.values()):
        world.write(f"{number}.manifest.csv", content)
        world.write(f"{number}.manifest.csv_READY", "")
    failed = dict(world.run_import(spec).failed)
    assert len(failed) == len(BAD_MANIFESTS)
    for number, (_, message) in enumerate(BAD_MANIFESTS.values()):
        error = failed[str(number)]
        assert isinstance(error, DataError)
        assert f"{number}.manifest.csv" in str(error)
        assert message in str(error)
