"""CNTK is started once for all tests, as a worker starts it."""

import pytest

from dlb_cntk.plugin import adapter
from dlb_worker.contract import StartRequest


@pytest.fixture(scope="session", autouse=True)
def facts():
    return adapter.start(StartRequest(threads=2))
