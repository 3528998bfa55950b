"""The catalogue, the embedded subset, and where data sets are looked for."""

from __future__ import annotations

import gzip
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dlb.data import locate
from dlb.data.description import DataSetDescription
from dlb.data.load import load_described
from dlb.data.registry import data_set, data_sets
from dlb.errors import DataError, UnknownNameError

pytestmark = pytest.mark.usefixtures("home")

EMBEDDED = Path(locate.__file__).parent / "embedded"

Describe = Callable[..., DataSetDescription]


@pytest.mark.parametrize("name", data_sets())
def test_every_description_holds_together(name: str) -> None:
    description = data_set(name)
    for split in description.splits:
        sizes = [description.file(part).size for part in split.parts]
        pixels = math.prod(description.sample_shape)
        if description.format == "idx":
            assert description.file(split.images).size == 16 + split.n_samples * pixels
            assert description.file(split.labels).size == 8 + split.n_samples
        elif description.format == "records":
            assert sum(sizes) == split.n_samples * (description.label_bytes + pixels)
        else:  # each word and each end of a line is followed by a space or is one character itself
            assert 0 < split.n_samples < sum(sizes) and description.vocabulary
    assert len(set(description.classes)) == len(description.classes)
    for file in description.files:
        assert len(file.sha256) == 64
        got_alone = bool(file.urls) and len(file.compressed_sha256) == 64
        assert description.embedded or description.archives or got_alone
        assert all(url.endswith((f"/{file.name}.gz", f"/{file.name}")) for url in file.urls)
    for archive in description.archives:
        assert all(url.endswith(f"/{archive.name}") for url in archive.urls)
        assert not archive.urls or (archive.size and len(archive.sha256) == 64)
    assert description.embedded == (description.download_size == 0)


def test_descriptions_need_no_numpy() -> None:
    script = (
        "import sys, dlb.data.locate, dlb.data.subset, dlb_data.catalogue, dlb_data.fetch; "
        "sys.exit('numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_unknown_names_propose_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'fashion-mnist'"):
        load_described(data_set("fashion-mnits"), "train")
    with pytest.raises(UnknownNameError, match="did you mean 'train'"):
        load_described(data_set("fashion-mnist-subset"), "trian")
    with pytest.raises(UnknownNameError):
        data_set("imagenet")


@pytest.mark.parametrize(("split", "per_class"), [("train", 200), ("test", 100)])
def test_the_embedded_subset_is_balanced(split: str, per_class: int) -> None:
    data = load_described(data_set("fashion-mnist-subset"), split)
    assert data.images.shape == (10 * per_class, 1, 28, 28)
    assert data.images.dtype == np.uint8
    assert data.labels.dtype == np.int64
    assert np.bincount(data.labels).tolist() == [per_class] * 10
    assert not data.images.flags.writeable
    assert not data.labels.flags.writeable


def test_the_embedded_files_are_small_and_carry_their_licence() -> None:
    assert sum(path.stat().st_size for path in EMBEDDED.rglob("*") if path.is_file()) < 1_500_000
    licence = (EMBEDDED / "fashion-mnist-subset" / "LICENSE").read_text("utf-8")
    assert "Copyright © 2017 Zalando SE" in licence


def test_states_say_where_each_data_set_is() -> None:
    states = {name: locate.state_of(each) for name, each in data_sets().items()}
    assert states["fashion-mnist-subset"].where == "embedded"
    assert states["mnist"].where == "not fetched"
    assert states["mnist"].n_train == 60_000
    assert states["mnist"].download_size == 11_594_722


def test_a_data_set_not_here_says_how_to_get_it() -> None:
    with pytest.raises(DataError, match="dlb data fetch mnist"):
        load_described(data_set("mnist"), "train")


def put(folder: Path, contents: dict[str, bytes], compress: bool = False) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        if compress:
            (folder / f"{name}.gz").write_bytes(gzip.compress(content))
        else:
            (folder / name).write_bytes(content)


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("inside", ["tiny", ""])
def test_the_users_folder_comes_first(
    home: Path,
    tmp_path: Path,
    tiny: dict[str, bytes],
    describe_tiny: Describe,
    monkeypatch: pytest.MonkeyPatch,
    compress: bool,
    inside: str,
) -> None:
    description = describe_tiny(tiny)
    put(home / "data" / "tiny", tiny)
    assert locate.find_described(description) == home / "data" / "tiny"
    mine = tmp_path / "mine"
    monkeypatch.setenv("DLB_DATA_DIR", str(mine))
    assert locate.find_described(description) == home / "data" / "tiny"
    put(mine / inside, tiny, compress)
    assert locate.find_described(description) == mine / inside
    assert load_described(description, "train").folder == mine / inside


def test_files_of_the_same_names_are_not_taken_for_another_data_set(
    tmp_path: Path,
    tiny: dict[str, bytes],
    describe_tiny: Describe,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DLB_DATA_DIR", str(tmp_path / "mine"))
    put(tmp_path / "mine", tiny)
    others = {name: content[:-1] + b"\x02" for name, content in tiny.items()}
    assert locate.find_described(describe_tiny(others, name="other")) is None
    assert locate.find_described(describe_tiny(tiny)) == tmp_path / "mine"


def test_a_folder_that_lacks_a_file_does_not_count(
    home: Path, tiny: dict[str, bytes], describe_tiny: Describe
) -> None:
    description = describe_tiny(tiny)
    put(home / "data" / "tiny", tiny)
    (home / "data" / "tiny" / "t10k-labels").unlink()
    assert locate.find_described(description) is None
