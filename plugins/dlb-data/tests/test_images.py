"""Folders of images and ImageNet's archives, made here as the originals are, whole and damaged."""

from __future__ import annotations

import io
import sys
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat
from test_own_data import classifier
from tiny_data import link, pack

from dlb.data.augmentation import CropBox, crop_box, draw_resized_crops
from dlb.data.batches import draw_sample_schedule, sample_order
from dlb.data.resizing import resize_crops
from dlb.errors import DataError, RequestError
from dlb.samples import Splits, open_split, write_samples
from dlb_data.imagenet import DEVKIT, SYNSETS, TRAIN, VALIDATION
from dlb_data.images import ImageFile, decode
from dlb_graph.workload import Workload

pytestmark = pytest.mark.usefixtures("home")

SHAPE = (3, 8, 6)


def picture(
    colour: tuple[int, ...] | int, size: tuple[int, int] = (12, 9), mode: str = "RGB"
) -> Any:
    return Image.new(mode, size, colour)


def encoded(image: Any, form: str = "PNG", **options: Any) -> bytes:
    output = io.BytesIO()
    image.save(output, form, **options)
    return output.getvalue()


def colour(number: int) -> tuple[int, int, int]:
    return number, 2 * number, 255 - number


def shown(source: Any, sample: int) -> tuple[int, ...]:
    """The one colour of a sample."""
    (image,) = source.read(np.array([sample]))
    assert image.shape == SHAPE and image.dtype == np.uint8
    found = {tuple(int(value) for value in pixel) for pixel in image.reshape(3, -1).T}
    assert len(found) == 1
    return found.pop()


def put(folder: Path, images: dict[str, bytes]) -> Path:
    for name, content in images.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def of(folder: Path, name: str = "folder", **more: Any) -> Workload:
    return classifier({"name": name, "path": str(folder)}, SHAPE, **more)


def test_classes_are_sub_folders_in_order(tmp_path: Path) -> None:
    images = {
        f"train/{kind}/{n}.png": encoded(picture(colour(10 * place + n)))
        for place, kind in enumerate(["Zebra", "ant", "bee"])
        for n in range(3)
    }
    images |= {
        f"val/{kind}/x.PNG": encoded(picture(colour(90))) for kind in ("ant", "bee", "Zebra")
    }
    images |= {
        "train/ant/notes.txt": b"no image",
        "train/.hidden/a.png": b"none",
        "train/a.png": b"",
    }
    put(tmp_path, images)
    put(tmp_path, {"train/bee/more/deep.png": encoded(picture(colour(77)))})
    workload = of(tmp_path)
    assert Splits(workload).count == 10
    train, test = open_split(workload, "train"), open_split(workload, "test")
    assert train.labels.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 2]
    assert [shown(train, n) for n in (0, 4, 9)] == [colour(0), colour(11), colour(77)]
    assert (test.count, test.labels.tolist()) == (3, [0, 1, 2])
    assert "10 images" in train.where and "Pillow" in train.where
    assert train.decoded


def test_one_folder_keeps_every_tenth_image(tmp_path: Path) -> None:
    put(tmp_path, {f"{n % 2}/{n:02}.png": encoded(picture(colour(n))) for n in range(20)})
    train, test = (open_split(of(tmp_path), split) for split in ("train", "test"))
    assert (train.count, test.count) == (18, 2)
    assert [shown(test, 0), shown(test, 1)] == [colour(18), colour(19)]


def test_images_are_cut_about_their_centre_and_resized(tmp_path: Path) -> None:
    # Red, green and blue thirds; a square shape keeps the middle.
    wide = np.zeros((10, 30, 3), np.uint8)
    for third in range(3):
        wide[:, 10 * third : 10 * third + 10, third] = 200
    content = encoded(Image.fromarray(wide))
    middle = decode(content, (3, 5, 5), "x")
    assert middle.shape == (3, 5, 5)
    # At the edges antialiasing mixes in a little of what is cut off, as resizing first would.
    assert middle[:, 0].T.tolist() == [[25, 175, 0], *[[0, 200, 0]] * 3, [0, 175, 25]]
    assert (middle == middle[:, :1]).all()
    assert decode(content, (3, 10, 30), "x").tolist() == wide.transpose(2, 0, 1).tolist()
    assert decode(encoded(picture(99, mode="L")), (3, 4, 4), "x").tolist() == [[[99] * 4] * 4] * 3
    assert decode(encoded(picture((0, 0, 0))), (1, 4, 4), "x").tolist() == [[[0] * 4] * 4]


PART = CropBox(top=3, left=5, height=6, width=9)


def test_a_part_of_an_image_is_cut_before_it_is_resized() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (20, 30, 3)).astype(np.uint8)
    of = pixels[3:9, 5:14]
    true = np.asarray(Image.fromarray(of).resize((6, 8), Image.Resampling.BILINEAR))
    sizes = []

    def choose(height: int, width: int) -> CropBox:
        sizes.append((height, width))
        return PART

    found = decode(encoded(Image.fromarray(pixels)), SHAPE, "x", choose)
    assert found.tolist() == true.transpose(2, 0, 1).tolist() and sizes == [(20, 30)]
    same = resize_crops(
        np.ascontiguousarray(pixels.transpose(2, 0, 1))[None], lambda place, *size: PART
    )
    true = np.asarray(Image.fromarray(of).resize((30, 20), Image.Resampling.BILINEAR))
    assert same[0].tolist() == true.transpose(2, 0, 1).tolist()


def test_parts_of_numbers_are_resized_as_those_of_pixels() -> None:
    """Pillow rounds pixels after each of two passes."""
    pixels = np.random.default_rng(1).integers(0, 256, (2, 5, 12, 10)).astype(np.uint8)

    def choose(place: int, height: int, width: int) -> CropBox:
        return CropBox(top=place, left=1, height=height // 2, width=width - 3)

    rounded = resize_crops(pixels, choose)
    for dtype in ("float32", "float64"):
        found = resize_crops(pixels.astype(dtype), choose)
        assert found.dtype == dtype and np.abs(found - rounded).max() <= 1.01
    whole = resize_crops(pixels, lambda place, height, width: CropBox(0, 0, height, width))
    assert whole.tolist() == pixels.tolist()


def test_a_run_is_given_the_parts_that_its_visits_draw(tmp_path: Path) -> None:
    pixels = np.random.default_rng(2).integers(0, 256, (20, 14, 17, 3)).astype(np.uint8)
    put(tmp_path, {f"{n % 2}/{n:02}.png": encoded(Image.fromarray(pixels[n])) for n in range(20)})
    augmented = {"augmentation": {"area": [0.2, 0.9], "flip": True}}
    workload = classifier({"name": "folder", "path": str(tmp_path), **augmented}, SHAPE)
    source, augmentation = open_split(workload, "train"), workload.data.augmentation
    sample_schedule = draw_sample_schedule(augmentation, source.count, 5, 7, 4)
    assert sample_schedule.resized_crops is not None
    write_samples(
        workload,
        source,
        sample_schedule.samples,
        "float64",
        tmp_path / "x.npz",
        sample_schedule.resized_crops,
    )
    with np.load(tmp_path / "x.npz") as written:
        inputs, labels = written["inputs"], written["labels"]
    order = sample_order(18, 5, 7, 4)
    assert inputs.shape == (35, *SHAPE) and labels.tolist() == source.labels[order].ravel().tolist()
    # Of a folder without splits every tenth image is for testing; those of class 0 come first.
    files = [*range(0, 18, 2), *range(1, 19, 2)]
    for sample, drawn, found in zip(
        order.ravel(), draw_resized_crops(order, 18, 4).reshape(-1, 22), inputs
    ):
        part = crop_box(drawn, 14, 17, augmentation)
        cut = pixels[files[sample]][part.top :, part.left :][: part.height, : part.width]
        true = np.asarray(Image.fromarray(cut).resize((6, 8), Image.Resampling.BILINEAR))
        np.testing.assert_array_equal(found, true.transpose(2, 0, 1) / 255)


@pytest.mark.parametrize(
    "content",
    [
        encoded(picture((7, 7, 7)), "JPEG", quality=95),
        encoded(picture((0, 0, 0, 247), mode="CMYK"), "JPEG", quality=95),
        encoded(picture(7, mode="L"), "JPEG", quality=95),
        encoded(picture((7, 7, 7, 0), mode="RGBA")),
        encoded(picture((7, 7, 7)).quantize(4), "GIF"),
        encoded(picture((7, 7, 7)), "BMP"),
        encoded(picture((7, 7, 7)), "PPM"),
    ],
    ids=["jpeg", "jpeg cmyk", "jpeg grey", "png alpha", "gif", "bmp", "ppm"],
)
def test_every_kind_of_image_is_read_whatever_its_name(content: bytes) -> None:
    found = decode(content, (3, 4, 4), "x")
    assert np.abs(found.astype(int) - 7).max() <= 3  # JPEG and palettes round


JPEG = encoded(
    Image.fromarray(np.random.RandomState(0).randint(0, 256, (64, 64, 3)).astype(np.uint8)), "JPEG"
)


@pytest.mark.parametrize(
    "content",
    [b"", b"no image at all", JPEG[:-200], JPEG[:20], encoded(picture((1, 2, 3)))[:-35]],
    ids=["empty", "text", "jpeg cut", "jpeg header", "png cut"],
)
def test_a_corrupt_image_is_named(tmp_path: Path, content: bytes) -> None:
    put(tmp_path, {f"a/{n:02}.jpg": JPEG for n in range(20)})
    put(tmp_path, {"a/05.jpg": content})
    (tmp_path / "b").mkdir()
    source = open_split(of(tmp_path), "train")
    assert source.read(np.array([4])).shape == (1, *SHAPE)
    with pytest.raises(
        DataError, match=r"05.jpg: not an image that can be read .* replace"
    ) as told:
        write_samples(of(tmp_path), source, np.arange(10), "float32", tmp_path / "out.npz")
    assert "BytesIO" not in str(told.value)


def test_an_image_of_absurd_size_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(DataError, match="12 x 9 pixels are too many"):
        decode(encoded(picture((1, 2, 3))), SHAPE, "x")
    with pytest.raises(DataError, match="decompression bomb"):
        decode(encoded(picture((1, 2, 3), (100, 100))), SHAPE, "x")


@pytest.mark.parametrize(
    ("names", "told"),
    [
        ([], "has no sub-folders"),
        (["a/notes.txt"], "holds no images"),
        (["train/a/1.png"], "has train alone"),
        (["val/a/1.png"], "has val alone"),
        (["train/a/1.png", "train/b/1.png", "test/a/1.png"], "not those of the training images: b"),
    ],
)
def test_folders_without_what_is_needed_are_refused(
    tmp_path: Path, names: list[str], told: str
) -> None:
    folder = tmp_path / "images"
    folder.mkdir()
    put(folder, {name: encoded(picture((1, 2, 3))) for name in names})
    with pytest.raises(DataError, match=told):
        for split in ("train", "test"):
            open_split(of(folder), split)


def test_a_model_that_reads_no_images_is_refused(tmp_path: Path) -> None:
    put(tmp_path, {f"a/{n}.png": b"" for n in range(10)})
    with pytest.raises(RequestError, match=r"shape \[2, 4, 4\]; images need \[3, height, width\]"):
        open_split(classifier({"name": "folder", "path": str(tmp_path)}, (2, 4, 4)), "train")
    put(tmp_path, {f"{kind}/1.png": b"" for kind in "bcd"})
    with pytest.raises(RequestError, match=r"label 3; .* predicts 3 classes"):
        open_split(of(tmp_path), "train")


def test_pillow_is_asked_for_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, {f"a/{n}.png": b"" for n in range(10)})
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(RequestError, match=r"pip install 'dlb-core\[images\]'"):
        open_split(of(tmp_path), "train")


#: WordNet ids, and the numbers of the development kit, which are in another order.
SYNSET_NUMBERS = {"n01440764": 3, "n01443537": 1, "n02119789": 2}


def image_at(number: int) -> bytes:
    return encoded(picture(colour(number)))


def training_archive(**more: Any) -> bytes:
    """As the original: not in order, a tar for each class."""
    members: dict[str, Any] = {}
    for place, name in reversed(list(enumerate(SYNSET_NUMBERS))):
        images = {f"{name}_{n}.JPEG": image_at(10 * place + n) for n in (12, 2)}
        members[f"{name}.tar"] = pack({**images}, "w")
    return pack({**members, **more}, "w")


def devkit(truth: str = "1\n2\n3\n3\n", numbers: dict[str, int] | None = None) -> bytes:
    synsets = np.zeros((len(SYNSET_NUMBERS), 1), [("ILSVRC2012_ID", "O"), ("WNID", "O")])
    for row, (name, number) in zip(synsets, (numbers or SYNSET_NUMBERS).items()):
        row[0]["ILSVRC2012_ID"], row[0]["WNID"] = float(number), name
    meta = io.BytesIO()
    savemat(meta, {"synsets": synsets})
    top = "ILSVRC2012_devkit_t12/data"
    return pack(
        {
            f"{top}/meta.mat": meta.getvalue(),
            f"{top}/ILSVRC2012_validation_ground_truth.txt": truth.encode(),
        }
    )


def imagenet(folder: Path) -> Path:
    validation = {f"ILSVRC2012_val_{n:08}.JPEG": image_at(100 + n) for n in (2, 1, 4, 3)}
    return put(
        folder,
        {TRAIN: training_archive(), VALIDATION: pack({**validation}, "w"), DEVKIT: devkit()},
    )


def test_imagenets_archives_are_read_in_place(tmp_path: Path) -> None:
    workload = of(imagenet(tmp_path), "imagenet")
    assert Splits(workload).count == 6
    train, test = open_split(workload, "train"), open_split(workload, "test")
    assert train.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert [shown(train, n) for n in range(6)] == [colour(n) for n in (12, 2, 22, 12, 32, 22)]
    # Numbers 1, 2, 3, 3 are the second, third, first and first WordNet id.
    assert test.labels.tolist() == [1, 2, 0, 0]
    assert [shown(test, n) for n in range(4)] == [colour(n) for n in (101, 102, 103, 104)]
    assert {path.name for path in tmp_path.iterdir()} == {"home", TRAIN, VALIDATION, DEVKIT} - (
        set() if (tmp_path / "home").exists() else {"home"}
    )


def test_wordnet_ids_in_a_text_serve_as_well(tmp_path: Path) -> None:
    imagenet(tmp_path)
    (tmp_path / DEVKIT).unlink()
    workload = of(tmp_path, "imagenet")
    with pytest.raises(DataError, match=f"has neither {DEVKIT} nor {SYNSETS}"):
        open_split(workload, "test")
    (tmp_path / SYNSETS).write_text("n02119789\nn01440764\nn01440764\nn01443537\n")
    assert open_split(workload, "test").labels.tolist() == [2, 0, 0, 1]
    (tmp_path / VALIDATION).unlink()
    assert (open_split(of(put(tmp_path, {TRAIN: big()}), "imagenet"), "test")).count == 1


def big() -> bytes:
    return pack({"n1.tar": pack({f"n1_{n}.JPEG": image_at(n) for n in range(12)}, "w")}, "w")


def test_imagenet_is_found_by_name_or_as_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload = classifier({"name": "imagenet"}, SHAPE)
    with pytest.raises(RequestError, match="at imagenet/ in the folder DLB_DATA_DIR"):
        open_split(workload, "train")
    imagenet(tmp_path / "data" / "imagenet")
    monkeypatch.setenv("DLB_DATA_DIR", str(tmp_path / "data"))
    assert open_split(workload, "train").count == 6
    names = ("train/n1/a.JPEG", "train/n2/b.JPEG", "val/n1/c.JPEG", "val/n2/d.JPEG", "test/e.JPEG")
    unpacked = put(tmp_path / "unpacked", {name: image_at(1) for name in names})
    assert open_split(of(unpacked, "imagenet"), "test").count == 2


def test_one_class_alone_is_refused_and_the_classes_are_counted(tmp_path: Path) -> None:
    put(tmp_path, {f"images/{n % 2}/{n}.png": image_at(n) for n in range(20)})
    with pytest.raises(
        DataError, match=r"one sub-folder, images, .* of one class of 3; data.path must name"
    ):
        open_split(of(tmp_path), "train")
    assert "20 images of 2 of 3 classes" in open_split(of(tmp_path / "images"), "train").where


def evil_members() -> dict[str, Any]:
    inner = pack(
        {
            "../../climb.JPEG": image_at(1),
            "n0_link.JPEG": link("n0_link.JPEG", "/etc/passwd"),
            "/abs.JPEG": image_at(2),
        },
        "w",
    )
    return {"../n00000000.tar": inner, "n9.tar": link("n9.tar", "/etc/passwd"), "x.txt": b"text"}


def test_paths_in_archives_lead_nowhere(tmp_path: Path) -> None:
    put(tmp_path, {TRAIN: training_archive(**evil_members())})
    put(tmp_path, {VALIDATION: b"not looked at"})
    before = sorted(tmp_path.parent.rglob("*"))
    train = open_split(of(tmp_path, "imagenet", classes=4), "train")
    assert train.count == 8  # the links and the text are not among them
    assert train.read(np.arange(2)).shape == (2, *SHAPE)
    assert sorted(tmp_path.parent.rglob("*")) == before


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        (TRAIN, b"", "not the original archive"),
        (TRAIN, b"text " * 1000, "not the original archive"),
        (TRAIN, training_archive()[:5000], "not the original archive"),
        (TRAIN, pack({"n1.tar": pack({}, "w")}, "w"), "no images of n1"),
        (TRAIN, pack({"n1.tar": b"no tar" * 200}, "w"), "not the original archive"),
        (TRAIN, pack({"n1.JPEG": b"x"}, "w"), "no archives of classes"),
        (VALIDATION, pack({"a.txt": b"x"}, "w"), "no images in it"),
        (VALIDATION, pack({"a.JPEG": b"x"}, "w"), "holds 1 images, and 4 classes"),
        (DEVKIT, devkit("1\n2\n3\n9\n"), "ground truth has 9"),
        (DEVKIT, devkit("1\n2\n3\nx\n"), "ground truth has"),
        (DEVKIT, devkit(numbers={"n8": 1, "n9": 2, "n7": 3}), "class n7, which"),
        (DEVKIT, devkit()[:-100], "not the original archive"),
        (DEVKIT, pack({"a": b"x"}), "no ILSVRC2012_devkit_t12/data/meta.mat in it"),
    ],
)
def test_archives_that_are_not_the_originals_are_refused(
    tmp_path: Path, name: str, content: bytes, told: str
) -> None:
    put(imagenet(tmp_path), {name: content})
    with pytest.raises(DataError, match=told) as caught:
        open_split(of(tmp_path, "imagenet"), "test")
    assert str(tmp_path) in str(caught.value)


def test_an_image_that_is_cut_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"0123456789")
    assert ImageFile(tmp_path / "a.bin", 2, 5, "x").read() == b"23456"
    with pytest.raises(DataError, match=r"a.bin: x: truncated: 3 of 5 bytes"):
        ImageFile(tmp_path / "a.bin", 7, 5, "x").read()


def test_tars_inside_tars_are_where_they_are_said_to_be(tmp_path: Path) -> None:
    """The places found are those that the tar module itself reads from."""
    put(tmp_path, {TRAIN: training_archive()})
    with tarfile.open(tmp_path / TRAIN) as outer:
        inner_file = outer.extractfile("n01443537.tar")
        assert inner_file is not None
        with tarfile.open(fileobj=inner_file) as inner:
            expected = inner.extractfile("n01443537_2.JPEG")
            assert expected is not None
            content = expected.read()
    from dlb_data.imagenet import _stamp, _training

    _, files, _ = _training(tmp_path / TRAIN, _stamp(tmp_path / TRAIN))
    (found,) = (file for file in files if file.name == "n01443537_2.JPEG")
    assert found.read() == content == image_at(12)
