"""The data sets of this package."""

from __future__ import annotations

from dlb.data.description import DataSetDescription
from dlb_data import cifar, mnist, penn_treebank

__all__ = ["DATA_SETS"]

DATA_SETS: tuple[DataSetDescription, ...] = (
    mnist.FASHION_MNIST,
    mnist.MNIST,
    cifar.CIFAR_10,
    cifar.CIFAR_100,
    penn_treebank.PENN_TREEBANK,
)
