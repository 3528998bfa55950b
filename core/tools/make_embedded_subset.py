"""Make the Fashion-MNIST subset that the package carries, from the four original files.

Of each class the first 200 training and the first 100 test images are chosen, by their place in
the original files, and the chosen ones are kept in the original order: nothing is drawn at
random, so anyone can repeat the choice.

    pip install ./plugins/dlb-data
    dlb data fetch fashion-mnist
    python tools/make_embedded_subset.py

The IDX bytes are the same wherever this is run. The compressed bytes are the same wherever Python
uses the original zlib (a few builds use another deflate, which compresses differently); the
description's checksums are those of the IDX bytes.
"""

from __future__ import annotations

import argparse
import hashlib
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dlb.data.description import SplitDescription
from dlb.data.idx import encode_idx
from dlb.data.load import load_described
from dlb.data.registry import data_set

TARGET = Path(__file__).parents[1] / "src" / "dlb" / "data" / "embedded" / "fashion-mnist-subset"
PER_CLASS = {"train": 200, "test": 100}


def first_of_each_class(labels: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.int64]:
    """Indices, ascending, of the first ``count`` samples of each class. int64 [classes * count]."""
    chosen = [np.flatnonzero(labels == label)[:count] for label in np.unique(labels)]
    return np.sort(np.concatenate(chosen)).astype(np.int64)


def compress(content: bytes) -> bytes:
    """A gzip file (RFC 1952) with no name and no time, the header written out.

    ``gzip.compress`` writes another operating-system byte in some Python versions.
    """
    deflate = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS, 9)
    body = deflate.compress(content) + deflate.flush()
    header = b"\x1f\x8b\x08\0\0\0\0\0\x02\xff"
    return header + body + struct.pack("<II", zlib.crc32(content), len(content))


def write(folder: Path, name: str, array: npt.NDArray[Any]) -> None:
    """Write one file and print its line for the description."""
    content = encode_idx(array)
    compressed = compress(content)
    (folder / f"{name}.gz").write_bytes(compressed)
    digest = hashlib.sha256(content).hexdigest()
    print(f"{name}: {len(content):,} bytes, sha256 {digest}, {len(compressed):,} compressed")


def make_split(folder: Path, split: SplitDescription) -> None:
    """Write the two files of one split."""
    full = load_described(data_set("fashion-mnist"), split.name)
    chosen = first_of_each_class(full.labels, PER_CLASS[split.name])
    write(folder, split.images, full.images[chosen, 0])
    write(folder, split.labels, full.labels[chosen].astype(np.uint8))


def main() -> None:
    """Write the four files."""
    parser = argparse.ArgumentParser(description="Make the embedded Fashion-MNIST subset.")
    parser.add_argument("--target", type=Path, default=TARGET, help="folder to write in")
    target: Path = parser.parse_args().target
    target.mkdir(parents=True, exist_ok=True)
    for split in data_set("fashion-mnist").splits:
        make_split(target, split)


if __name__ == "__main__":
    main()
