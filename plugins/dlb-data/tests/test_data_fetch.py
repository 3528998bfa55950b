"""Fetching from a real HTTP server: whole, resumed, damaged, oversized, absent, at once."""

from __future__ import annotations

import gzip
import os
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dlb.data.description import DataSetDescription, PackageSource
from dlb.data.load import load_described
from dlb.data.registry import data_set
from dlb.errors import DataError
from dlb_data.fetch import fetch

if TYPE_CHECKING:
    from conftest import Site

Describe = Callable[..., DataSetDescription]
IMAGES = "/here/train-images.gz"


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {".lock"}


def test_a_fetched_data_set_loads(
    home: Path, site: Site, tiny: dict[str, bytes], describe_tiny: Describe
) -> None:
    description = describe_tiny(tiny, (site.put("here", tiny),))
    told: list[str] = []
    folder = fetch(description, report=told.append)
    assert folder == home / "data" / "tiny"
    assert names(folder) == {f"{name}.gz" for name in tiny}
    assert load_described(description, "train").images.tobytes() == tiny["train-images"][16:]
    assert any("train-images.gz" in line for line in told)
    asked = len(site.asked)
    assert fetch(description) == folder
    assert len(site.asked) == asked


@pytest.mark.parametrize("cut", [1, 100, 1000])
def test_a_cut_transfer_goes_on_where_it_stopped(
    home: Path, site: Site, tiny: dict[str, bytes], describe_tiny: Describe, cut: int
) -> None:
    description = describe_tiny(tiny, (site.put("here", tiny),))
    site.truncate[IMAGES] = [cut]
    fetch(description)
    assert site.asked[:2] == [(IMAGES, ""), (IMAGES, f"bytes={cut}-")]
    load_described(description, "train")


def test_a_later_fetch_goes_on_where_an_earlier_one_stopped(
    home: Path, site: Site, tiny: dict[str, bytes], describe_tiny: Describe
) -> None:
    description = describe_tiny(tiny, (site.put("here", tiny),))
    site.truncate[IMAGES] = [700]
    with pytest.raises(DataError, match="stopped after 700 of"):
        fetch(description, attempts=1)
    assert (home / "data" / "tiny" / "train-images.gz.part").stat().st_size == 700
    fetch(description, attempts=1)
    assert site.asked[1] == (IMAGES, "bytes=700-")
    load_described(description, "train")


def test_a_server_without_ranges_is_asked_for_the_whole_again(
    home: Path, site: Site, tiny: dict[str, bytes], describe_tiny: Describe
) -> None:
    description = describe_tiny(tiny, (site.put("here", tiny),))
    site.truncate[IMAGES] = [700]
    site.ranges = False
    fetch(description)
    load_described(description, "train")


@pytest.mark.parametrize("kept", [b"x" * 50, b"x" * 100_000, "full"])
def test_a_bad_part_is_thrown_away(
    home: Path,
    site: Site,
    tiny: dict[str, bytes],
    describe_tiny: Describe,
    kept: bytes | str,
) -> None:
    description = describe_tiny(tiny, (site.put("here", tiny),))
    folder = home / "data" / "tiny"
    folder.mkdir(parents=True)
    part = kept if isinstance(kept, bytes) else b"x" * len(site.pages[IMAGES])
    (folder / "train-images.gz.part").write_bytes(part)
    fetch(description)
    load_described(description, "train")


def test_tampered_bytes_are_refused_and_not_kept(
    home: Path, site: Site, tiny: dict[str, bytes], describe_tiny: Describe
) -> None:
    description = describe_tiny(tiny, (site.put("here", tiny),))
    page = bytearray(site.pages[IMAGES])
    page[-20] ^= 1
    site.pages[IMAGES] = bytes(page)
    with pytest.raises(DataError, match="altered") as caught:
        fetch(description)
    assert IMAGES in str(caught.value)
    assert "DLB_DATA_DIR" in str(caught.value)
    assert names(home / "data" / "tiny") == set()
    assert len(site.asked) == 1


def test_content_that_is_not_the_data_sets_is_refused(
    home: Path, site: Site, tiny: dict[str, bytes], describe_tiny: Describe
) -> None:
    # The compressed file is as described and what is in it is not: the content has the last word.
    description = describe_tiny(tiny, (site.put("here", tiny),))
    wrong = tuple(replace(file, sha256="0" * 64) for file in description.files)
    with pytest.raises(DataError, match="not that of the data set"):
        fetch(replace(description, files=wrong))
    assert names(home / "data" / "tiny") == set()


@pytest.mark.parametrize("announce", [True, False])
def test_an_oversized_answer_is_cut_off(
    home: Path,
    site: Site,
    tiny: dict[str, bytes],
    describe_tiny: Describe,
    announce: bool,
) -> None:
    description = describe_tiny(tiny, (site.put("here", tiny),))
    site.pages[IMAGES] += bytes(50_000_000)
    site.announce_size = announce
    with pytest.raises(DataError, match="oversized"):
        fetch(description)
    assert names(home / "data" / "tiny") == set()


def test_the_second_address_is_tried_when_the_first_has_nothing(
    home: Path, site: Site, tiny: dict[str, bytes], describe_tiny: Describe
) -> None:
    bases = (f"{site.base}/nowhere/", site.put("here", tiny))
    description = describe_tiny(tiny, bases)
    fetch(description)
    load_described(description, "test")
    nowhere = [path for path, _ in site.asked if path == "/nowhere/train-images.gz"]
    assert len(nowhere) == 1  # a 404 is not asked for again


def test_a_server_that_is_busy_is_asked_again(
    home: Path, site: Site, tiny: dict[str, bytes], describe_tiny: Describe
) -> None:
    description = describe_tiny(tiny, (site.put("here", tiny),))
    site.statuses[IMAGES] = [503]
    fetch(description)
    load_described(description, "train")


def test_redirects_are_followed_over_http_only(
    home: Path, site: Site, tiny: dict[str, bytes], describe_tiny: Describe, tmp_path: Path
) -> None:
    site.put("here", tiny)
    description = describe_tiny(tiny, (f"{site.base}/moved/",))
    for name in tiny:
        site.redirects[f"/moved/{name}.gz"] = f"{site.base}/here/{name}.gz"
    fetch(description)
    load_described(description, "train")

    other = replace(describe_tiny(tiny, (f"{site.base}/ftp/",)), name="other")
    site.redirects["/ftp/train-images.gz"] = f"ftp://127.0.0.1{IMAGES}"
    with pytest.raises(DataError, match="unknown url type: ftp"):
        fetch(other, attempts=1)
    (tmp_path / "train-images.gz").write_bytes(gzip.compress(tiny["train-images"], mtime=0))
    with pytest.raises(DataError, match="not an http or https address"):
        fetch(replace(describe_tiny(tiny, (f"{tmp_path.as_uri()}/",)), name="local"))


def test_every_way_that_failed_is_listed(
    home: Path,
    site: Site,
    tiny: dict[str, bytes],
    describe_tiny: Describe,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # a machine with no package manager
    packages = (PackageSource("apt", "some-deb", "x"), PackageSource("npm", "some-npm", "x"))
    description = describe_tiny(tiny, (f"{site.base}/a/", "http://127.0.0.1:1/"), packages)
    with pytest.raises(DataError) as caught:
        fetch(description, attempts=1)
    message = str(caught.value)
    for way in ("/a/train-images.gz: answered 404", "127.0.0.1:1/train", "refused"):
        assert way in message
    assert "apt-get: not on this machine" in message
    assert "npm: not on this machine" in message
    assert "set DLB_DATA_DIR" in message


def test_offline_nothing_is_asked(
    home: Path, site: Site, tiny: dict[str, bytes], describe_tiny: Describe
) -> None:
    description = describe_tiny(tiny, (site.put("here", tiny),))
    with pytest.raises(DataError) as caught:
        fetch(description, offline=True)
    assert "train-images, train-labels" in str(caught.value)
    assert "set DLB_DATA_DIR" in str(caught.value)
    assert site.asked == []
    fetch(description)
    asked = len(site.asked)
    assert fetch(description, offline=True) == home / "data" / "tiny"
    assert len(site.asked) == asked


def test_a_silent_server_is_not_waited_for(
    home: Path, tiny: dict[str, bytes], describe_tiny: Describe
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        description = describe_tiny(tiny, (f"http://127.0.0.1:{port}/",))
        with pytest.raises(DataError, match="timed out"):
            fetch(description, timeout=0.2, attempts=1)


def test_a_damaged_file_is_replaced(
    home: Path, site: Site, tiny: dict[str, bytes], describe_tiny: Describe
) -> None:
    description = describe_tiny(tiny, (site.put("here", tiny),))
    folder = fetch(description)
    (folder / "t10k-labels.gz").write_bytes(b"spoilt")
    site.asked.clear()
    fetch(description)
    assert site.asked == [("/here/t10k-labels.gz", "")]
    load_described(description, "test")


def test_two_fetches_at_once_download_once(
    home: Path, site: Site, tiny: dict[str, bytes], describe_tiny: Describe
) -> None:
    description = describe_tiny(tiny, (site.put("here", tiny),))
    failures: list[BaseException] = []

    def run() -> None:
        try:
            fetch(description)
        except BaseException as error:  # a thread's exception would otherwise be lost
            failures.append(error)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert sorted(path for path, _ in site.asked) == sorted(site.pages)
    load_described(description, "train")


def test_files_of_the_user_are_taken_and_never_touched(
    home: Path,
    tmp_path: Path,
    tiny: dict[str, bytes],
    describe_tiny: Describe,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mine = tmp_path / "mine" / "tiny"
    mine.mkdir(parents=True)
    for name, content in tiny.items():
        (mine / name).write_bytes(content)
    monkeypatch.setenv("DLB_DATA_DIR", str(mine.parent))
    assert fetch(describe_tiny(tiny)) == mine
    (mine / "train-images").write_bytes(b"spoilt")
    with pytest.raises(DataError, match="train-images"):
        fetch(describe_tiny(tiny))
    assert (mine / "train-images").read_bytes() == b"spoilt"
    assert not home.exists()


def test_the_embedded_subset_needs_no_fetch(home: Path) -> None:
    folder = fetch(data_set("fashion-mnist-subset"))
    assert folder.parts[-2:] == ("embedded", "fashion-mnist-subset")
    assert not home.exists()


def test_a_home_that_cannot_be_made_is_reported(
    tmp_path: Path,
    tiny: dict[str, bytes],
    describe_tiny: Describe,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("DLB_HOME", str(tmp_path / "file" / "home"))
    with pytest.raises(DataError, match="set DLB_HOME"):
        fetch(describe_tiny(tiny))


@pytest.mark.skipif(
    sys.platform == "win32" or (hasattr(os, "geteuid") and os.geteuid() == 0),
    reason="the administrator may write anywhere",
)
def test_a_folder_that_may_not_be_written_is_reported(
    home: Path, site: Site, tiny: dict[str, bytes], describe_tiny: Describe
) -> None:
    home.mkdir()
    home.chmod(0o500)
    with pytest.raises(DataError, match="set DLB_HOME"):
        fetch(describe_tiny(tiny, (site.put("here", tiny),)))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, a disk always full")
def test_a_full_disk_is_reported(
    home: Path, site: Site, tiny: dict[str, bytes], describe_tiny: Describe
) -> None:
    folder = home / "data" / "tiny"
    folder.mkdir(parents=True)
    (folder / "train-images.gz.part").symlink_to("/dev/full")
    with pytest.raises(DataError, match="the disk is full"):
        fetch(describe_tiny(tiny, (site.put("here", tiny),)))
