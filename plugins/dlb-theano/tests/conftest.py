"""Theano for all tests, with fewer and simpler operators to compile."""

import os

import pytest

from dlb_theano.plugin import adapter
from dlb_worker.contract import StartRequest

# Expressions that are not fused into one operator share their operators: a tenth as many to compile.
FLAGS = "optimizer_excluding=fusion:inplace,gcc.cxxflags=-O1"


@pytest.fixture(scope="session", autouse=True)
def started():
    os.environ["THEANO_FLAGS"] = FLAGS
    return adapter.start(StartRequest(threads=1))
