"""CIFAR-10 and CIFAR-100 (Krizhevsky 2009), in their binary version.

The archives' sizes and checksums come from TensorFlow Datasets (``url_checksums/cifar10.txt`` and
``cifar100.txt`` in github.com/tensorflow/datasets). Those of the files inside come from torchvision-ruby
(``datasets/cifar10.rb`` and ``cifar100.rb`` in github.com/ankane/torchvision-ruby).

https://www.cs.toronto.edu/~kriz/cifar.html describes the format. A record is a byte with the label, then
the 3,072 bytes of an image [3, 32, 32], red first. CIFAR-100 has a byte with the coarse label before that
with the fine label.
"""

from __future__ import annotations

from dlb.data.description import Archive, DataFile, DataSetDescription, SplitDescription

__all__ = ["CIFAR_10", "CIFAR_100"]

_HOME = "https://www.cs.toronto.edu/~kriz/"
_LICENCE = "none stated; cite Krizhevsky 2009"


def _archive(name: str, folder: str, size: int, sha256: str) -> Archive:
    return Archive(name, folder, (f"{_HOME}{name}",), size, sha256)


_BATCHES = tuple(f"data_batch_{number}.bin" for number in range(1, 6))

CIFAR_10 = DataSetDescription(
    name="cifar-10",
    title="CIFAR-10",
    licence=_LICENCE,
    source=f"{_HOME}cifar.html",
    sample_shape=(3, 32, 32),
    classes=(
        "airplane",
        "automobile",
        "bird",
        "cat",
        "deer",
        "dog",
        "frog",
        "horse",
        "ship",
        "truck",
    ),
    splits=(
        SplitDescription("train", 50_000, parts=_BATCHES),
        SplitDescription("test", 10_000, parts=("test_batch.bin",)),
    ),
    files=(
        DataFile(
            "data_batch_1.bin",
            30_730_000,
            "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
        ),
        DataFile(
            "data_batch_2.bin",
            30_730_000,
            "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
        ),
        DataFile(
            "data_batch_3.bin",
            30_730_000,
            "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
        ),
        DataFile(
            "data_batch_4.bin",
            30_730_000,
            "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
        ),
        DataFile(
            "data_batch_5.bin",
            30_730_000,
            "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
        ),
        DataFile(
            "test_batch.bin",
            30_730_000,
            "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
        ),
    ),
    format="records",
    archives=(
        _archive(
            "cifar-10-binary.tar.gz",
            "cifar-10-batches-bin",
            170_052_171,
            "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
        ),
    ),
)

# The names of the fine labels; the coarse labels are skipped.
_FINE = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly
camel can castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup
dinosaur dolphin elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower
leopard lion lizard lobster man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid
otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine possum rabbit raccoon ray
road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar
sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle
wardrobe whale willow_tree wolf woman worm
"""

CIFAR_100 = DataSetDescription(
    name="cifar-100",
    title="CIFAR-100, fine labels",
    licence=_LICENCE,
    source=f"{_HOME}cifar.html",
    sample_shape=(3, 32, 32),
    classes=tuple(_FINE.split()),
    splits=(
        SplitDescription("train", 50_000, parts=("train.bin",)),
        SplitDescription("test", 10_000, parts=("test.bin",)),
    ),
    files=(
        DataFile(
            "train.bin",
            153_700_000,
            "f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29",
        ),
        DataFile(
            "test.bin",
            30_740_000,
            "d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a",
        ),
    ),
    format="records",
    label_bytes=2,
    archives=(
        _archive(
            "cifar-100-binary.tar.gz",
            "cifar-100-binary",
            168_513_733,
            "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
        ),
    ),
)
