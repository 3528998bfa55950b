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

    def submit(self, function: Any, /, *arguments: Any, **named: Any) -> Future[Any]:
        future = JobFuture(self._executor.submit(function, *arguments, **named))
        threading.Thread(target=_follow, args=(future,), daemon=True).start()
        return future


class JobFuture(Future[Any]):
    """The future of a job, which is cancelled with it."""

    def __init__(self, job: Any) -> None:
        super().__init__()
        self.job = job

    def cancel(self) -> bool:
        if not self.job.done():
            self.job.cancel()
        return super().cancel()


def _follow(future: JobFuture) -> None:
    """Give a future what its job returns."""
    try:
        while not future.job.done():
            time.sleep(POLL_SECONDS)
        result = future.job.result()
    except Exception as error:
        if future.set_running_or_notify_cancel():
            future.set_exception(error)
    else:
        if future.set_running_or_notify_cancel():
            future.set_result(result)
