"""The data set that this package contains: a part of Fashion-MNIST."""

from __future__ import annotations

from dlb.data.description import DataFile, DataSetDescription, SplitDescription

__all__ = ["FASHION_MNIST_SUBSET"]

_TRAIN_IMAGES = "train-images-idx3-ubyte"
_TRAIN_LABELS = "train-labels-idx1-ubyte"
_TEST_IMAGES = "t10k-images-idx3-ubyte"
_TEST_LABELS = "t10k-labels-idx1-ubyte"


# Chosen and written by tools/make_embedded_subset.py, which prints these sizes and checksums.
FASHION_MNIST_SUBSET = DataSetDescription(
    name="fashion-mnist-subset",
    title="Fashion-MNIST, a part",
    licence="MIT",
    source="https://github.com/zalandoresearch/fashion-mnist",
    sample_shape=(1, 28, 28),
    classes=(
        "T-shirt/top",
        "Trouser",
        "Pullover",
        "Dress",
        "Coat",
        "Sandal",
        "Shirt",
        "Sneaker",
        "Bag",
        "Ankle boot",
    ),
    splits=(
        SplitDescription("train", 2_000, _TRAIN_IMAGES, _TRAIN_LABELS),
        SplitDescription("test", 1_000, _TEST_IMAGES, _TEST_LABELS),
    ),
    files=(
        DataFile(
            _TRAIN_IMAGES,
            1_568_016,
            "a724cd72799a6b1c3a81c4263865a75a73bb6473673b3394e34adf222930f19e",
        ),
        DataFile(
            _TRAIN_LABELS,
            2_008,
            "4738fd437c0f8d6498ae7f6f5c86f1cc3c878d4116ff169fc5635bd6847899cc",
        ),
        DataFile(
            _TEST_IMAGES,
            784_016,
            "7cee33c3c6414b1b86c25e665a6c4f41584269de3b7cc9768b1d351922845eef",
        ),
        DataFile(
            _TEST_LABELS,
            1_008,
            "3128d790775889812b73c4f13923559c8b9e281d112c6ea7862acf60a206a909",
        ),
    ),
    embedded=True,
)
