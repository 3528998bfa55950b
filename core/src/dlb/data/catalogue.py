"""The data sets that dlb knows by name."""

from __future__ import annotations

from dlb.data import cifar, mnist, penn_treebank
from dlb.data.description import (
    Archive,
    DataFile,
    DataSetDescription,
    PackageSource,
    SplitDescription,
    SplitName,
)
from dlb.errors import UnknownNameError

__all__ = [
    "Archive",
    "DataFile",
    "DataSetDescription",
    "PackageSource",
    "SplitDescription",
    "SplitName",
    "data_set_names",
    "describe",
]

_CATALOGUE = {
    description.name: description
    for description in (
        mnist.FASHION_MNIST_SUBSET,
        mnist.FASHION_MNIST,
        mnist.MNIST,
        cifar.CIFAR_10,
        cifar.CIFAR_100,
        penn_treebank.PENN_TREEBANK,
    )
}


def data_set_names() -> tuple[str, ...]:
    """Names of all data sets, the default one first."""
    return tuple(_CATALOGUE)


def describe(name: str) -> DataSetDescription:
    """The data set of that name.

    Raises:
        UnknownNameError: there is none.
    """
    try:
        return _CATALOGUE[name]
    except KeyError:
        raise UnknownNameError("data set", name, _CATALOGUE) from None
