"""CIFAR's binary records, and archives: fetched, the user's own, and not what they should be."""

from __future__ import annotations

import hashlib
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tiny_data import link, pack

from dlb.data.description import Archive, DataFile, DataSetDescription, SplitDescription
from dlb.data.load import load_described
from dlb.data.locate import find_described
from dlb.data.registry import data_set
from dlb.errors import DataError
from dlb_data.fetch import fetch

if TYPE_CHECKING:
    from conftest import Site

NAMES = ("data_batch_1.bin", "data_batch_2.bin", "test_batch.bin")
Record = tuple[int, np.ndarray]


def images_and_labels(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.RandomState(seed)
    return draw.randint(0, 256, (count, 3, 32, 32)).astype(np.uint8), np.arange(count) % 10


def records(images: np.ndarray, *labels: np.ndarray) -> bytes:
    """A file as https://www.cs.toronto.edu/~kriz/cifar.html tells it, byte by byte."""
    output = b""
    for number, image in enumerate(images):
        output += bytes(int(one[number]) for one in labels)
        for channel in image:  # red, green, blue, each row by row
            for row in channel:
                output += bytes(row.tolist())
    return output


def small_files(label_bytes: int = 1) -> dict[str, bytes]:
    files = {}
    for seed, name in enumerate(NAMES):
        images, labels = images_and_labels(6, seed)
        coarse = [np.full(6, 250)] * (label_bytes - 1)
        files[name] = records(images, *coarse, labels)
    return files


def describe_small(
    files: dict[str, bytes], packed: bytes = b"", base: str = "", label_bytes: int = 1
) -> DataSetDescription:
    """CIFAR-10 with few images, in the same files."""
    urls = (f"{base}/missing.tar.gz", f"{base}/cifar.tar.gz") if base else ()
    digest = hashlib.sha256(packed).hexdigest()
    return replace(
        data_set("cifar-10"),
        name="small",
        splits=(
            SplitDescription("train", 12, parts=NAMES[:2]),
            SplitDescription("test", 6, parts=NAMES[2:]),
        ),
        files=tuple(
            DataFile(name, len(content), hashlib.sha256(content).hexdigest())
            for name, content in files.items()
        ),
        label_bytes=label_bytes,
        archives=(Archive("cifar.tar.gz", "cifar-10-batches-bin", urls, len(packed), digest),),
    )


def in_folder(files: dict[str, bytes]) -> dict[str, bytes | tarfile.TarInfo]:
    return {f"cifar-10-batches-bin/{name}": content for name, content in files.items()}


def put(home: Path, files: dict[str, bytes]) -> None:
    folder = home / "data" / "small"
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)


@pytest.mark.parametrize("label_bytes", [1, 2])
def test_records_are_read_as_they_are(home: Path, label_bytes: int) -> None:
    files = small_files(label_bytes)
    put(home, files)
    description = describe_small(files, label_bytes=label_bytes)
    train, test = load_described(description, "train"), load_described(description, "test")
    first, second = images_and_labels(6, 0), images_and_labels(6, 1)
    np.testing.assert_array_equal(train.images, np.concatenate([first[0], second[0]]))
    np.testing.assert_array_equal(train.labels, np.concatenate([first[1], second[1]]))
    np.testing.assert_array_equal(test.images, images_and_labels(6, 2)[0])
    assert (train.images.dtype, train.labels.dtype) == (np.uint8, np.int64)
    assert not train.images.flags.writeable


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda content: content[:-1], "truncated: 18,437 of 18,438 bytes"),
        (lambda content: content + b"x", "oversized: it holds more than the 18,438 bytes"),
        (lambda content: content[:-1] + bytes([content[-1] ^ 1]), "altered: the SHA-256"),
    ],
)
def test_files_that_are_not_the_original_are_refused(home: Path, change: object, told: str) -> None:
    files = small_files()
    description = describe_small(files)
    put(home, {**files, NAMES[1]: change(files[NAMES[1]])})  # type: ignore[operator]
    with pytest.raises(DataError, match=told) as caught:
        load_described(description, "train")
    assert NAMES[1] in str(caught.value) and "fetch its data set again" in str(caught.value)
    assert len(load_described(description, "test").images) == 6


def test_a_description_that_does_not_fit_its_files_is_refused(home: Path) -> None:
    files = small_files()
    images, _ = images_and_labels(6, 0)
    files["data_batch_1.bin"] = records(images, np.array([0, 1, 2, 3, 4, 10]))
    put(home, files)
    with pytest.raises(DataError, match="label 10 where 0 to 9"):
        load_described(describe_small(files), "train")
    files = small_files()
    put(home, files)
    with pytest.raises(DataError, match="do not divide into records of 3,074"):
        load_described(describe_small(files, label_bytes=2), "train")
    described = describe_small(files)
    tests = [split for split in described.splits if split.name == "test"]
    train = SplitDescription("train", 11, parts=NAMES[:2])
    fewer = replace(described, splits=(train, *tests))
    with pytest.raises(DataError, match="holds 12 records where 11 are described"):
        load_described(fewer, "train")


def test_an_archive_is_fetched_resumed_and_unpacked(home: Path, site: Site) -> None:
    files = small_files()
    packed = pack(in_folder({**files, "readme.html": b"no data"}))
    site.pages["/cifar.tar.gz"] = packed
    site.truncate["/cifar.tar.gz"] = [1000]
    description = describe_small(files, packed, site.base)
    folder = fetch(description)
    assert ("/cifar.tar.gz", "bytes=1000-") in site.asked
    assert {path.name for path in folder.iterdir()} == {*NAMES, ".lock"}
    assert len(load_described(description, "train").images) == 12
    # A file that was spoilt is taken from the archive again.
    (folder / NAMES[0]).write_bytes(b"spoilt")
    fetch(description)
    assert len(load_described(description, "train").images) == 12


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz"])
def test_an_archive_of_the_user_is_unpacked_without_a_network(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    files = small_files()
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "cifar.tar.gz").write_bytes(pack(in_folder(files), mode))
    monkeypatch.setenv("DLB_DATA_DIR", str(mine))
    description = describe_small(files)
    assert find_described(description) is None
    assert fetch(description, offline=True) == home / "data" / "small"
    assert len(load_described(description, "test").images) == 6
    assert [path.name for path in mine.iterdir()] == ["cifar.tar.gz"]


def evil(files: dict[str, bytes]) -> dict[str, bytes]:
    good = in_folder(files)
    first = f"cifar-10-batches-bin/{NAMES[0]}"
    without = {name: content for name, content in good.items() if name != first}
    return {
        "climbs out": pack({**without, f"../{NAMES[0]}": files[NAMES[0]]}),
        "absolute": pack({**without, f"/tmp/{NAMES[0]}": files[NAMES[0]]}),
        "dots inside": pack({**without, f"cifar-10-batches-bin/../../{NAMES[0]}": files[NAMES[0]]}),
        "a link": pack({**without, first: link(first, "/etc/passwd")}),
        "altered": pack({**good, first: files[NAMES[0]][:-1] + b"?"}),
        "short": pack({**good, first: files[NAMES[0]][:-1]}),
        "cut": pack(good)[:-3000],
        "no archive": b"<html>Not found</html>" * 100,
    }


@pytest.mark.parametrize("kind", sorted(evil(small_files())))
def test_an_archive_that_is_not_what_it_should_be_leaves_nothing(
    home: Path, site: Site, kind: str
) -> None:
    files = small_files()
    packed = evil(files)[kind]
    site.pages["/cifar.tar.gz"] = packed
    before = set(home.parent.rglob("*"))
    with pytest.raises(DataError) as caught:
        fetch(describe_small(files, packed, site.base))
    message = str(caught.value)
    assert "missing.tar.gz: answered 404" in message or "cifar.tar.gz: " in message
    assert "or cifar.tar.gz" in message and "DLB_DATA_DIR" in message
    left = {path.name for path in home.parent.rglob("*") if path not in before}
    assert left <= {"home", "data", "small", ".lock", *NAMES[1:]} | (
        {NAMES[0]} if kind == "cut" else set()
    )
    assert not Path("/tmp", NAMES[0]).exists()
    with pytest.raises(DataError, match="dlb data fetch small"):
        load_described(describe_small(files), "train")


def test_another_archive_than_the_one_described_is_not_opened(home: Path, site: Site) -> None:
    files = small_files()
    packed = pack(in_folder(files))
    site.pages["/cifar.tar.gz"] = packed[:-1] + bytes([packed[-1] ^ 1])
    with pytest.raises(DataError, match="altered: SHA-256"):
        fetch(describe_small(files, packed, site.base))
