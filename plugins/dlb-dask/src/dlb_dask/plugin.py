"""The executor ``dask``. Dask is imported when it is asked for: this module is loaded at every command."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Executor

from dlb_worker import UnsupportedError, hookimpl

#: How long the scheduler may take to answer.
SECONDS = "20s"


@hookimpl
def dlb_executors() -> Mapping[str, Callable[[str], Executor]]:
    return {"dask": connect}


def connect(address: str) -> Executor:
    """An executor of the scheduler at ``HOST:PORT``.

    Raises:
        UnsupportedError: no address was given.
    """
    if not address:
        raise UnsupportedError("--executor dask needs the scheduler's address: dask://HOST:8786")
    from distributed import Client

    # Each cell starts processes and is timed, so that a worker of Dask should have one thread.
    client = Client(f"tcp://{address}", timeout=SECONDS)
    executor: Executor = client.get_executor(pure=False, retries=0)
    return executor
