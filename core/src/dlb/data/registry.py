"""Data sets by name: the one that dlb contains, and those of plugins."""

from __future__ import annotations

from importlib.util import find_spec

from dlb.data.description import DataSetDescription
from dlb.data.own import own_kinds
from dlb.data.subset import FASHION_MNIST_SUBSET
from dlb.errors import UnknownNameError
from dlb_worker.plugins import load_plugins

__all__ = ["PACKAGE", "data_set", "data_sets", "has_named_data_sets"]

#: The package that has the data sets of papers.
PACKAGE = "dlb-data"


def data_sets() -> dict[str, DataSetDescription]:
    """Every data set by name, dlb's own first, which a plugin cannot replace."""
    own = {FASHION_MNIST_SUBSET.name: FASHION_MNIST_SUBSET}
    return own | load_plugins().named("dlb_datasets") | own


def data_set(name: str) -> DataSetDescription:
    """The data set of that name.

    Raises:
        UnknownNameError: there is none.
    """
    descriptions = data_sets()
    if name not in descriptions:
        hint = "" if has_named_data_sets() else f"more are in the package {PACKAGE}"
        raise UnknownNameError("data set", name, [*descriptions, *own_kinds()], hint)
    return descriptions[name]


def has_named_data_sets() -> bool:
    """Whether the package with the data sets of papers is installed."""
    return find_spec("dlb_data") is not None
