"""The executor ``slurm``. submitit is imported when it is asked for: this module is loaded at every command."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

from dlb_worker import hookimpl

#: Where submitit keeps its files; every node must see it.
FOLDER = "dlb-slurm"
#: Seconds between two looks at a job.
POLL_SECONDS = 1.0


@hookimpl
def dlb_executors() -> Mapping[str, Callable[[str], Executor]]:
    return {"slurm": lambda options: SubmititExecutor(options, "slurm")}


class SubmititExecutor(Executor):
    """Jobs of submitit as futures.

    Args:
        options: parameters of :meth:`submitit.AutoExecutor.update_parameters`, ``NAME=VALUE`` each.
        cluster: ``slurm``, or ``local`` for processes of this machine.
    """

    def __init__(self, options: str, cluster: str) -> None:
        import submitit

        self._executor = submitit.AutoExecutor(folder=Path(FOLDER).resolve(), cluster=cluster)
        pairs = [word.partition("=") for word in options.split(",") if word]
        parameters = {name: int(value) if value.isdecimal() else value for name, _, value in pairs}
        self._executor.update_parameters(name="dlb", **parameters)
        self._jobs: list[Any] = []

    def submit(self, function: Any, /, *arguments: Any, **named: Any) -> Future[Any]:
        job, future = self._executor.submit(function, *arguments, **named), Future[Any]()
        self._jobs.append(job)
        threading.Thread(target=_follow, args=(job, future), daemon=True).start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        for job in self._jobs if cancel_futures else ():
            if not job.done():
                job.cancel()


def _follow(job: Any, future: Future[Any]) -> None:
    """Give a future what its job returns."""
    future.set_running_or_notify_cancel()
    try:
        while not job.done():
            time.sleep(POLL_SECONDS)
        future.set_result(job.result())
    except Exception as error:
        future.set_exception(error)
