"""Makes one environment: a virtual environment, two packages in it, and its record."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path

from dlb.environments import failures, inspection, record, sources, uv_process
from dlb.environments.index_settings import from_environment
from dlb.environments.pyenv import pyenv_python
from dlb.environments.record import Environment
from dlb.errors import EnvironmentMissing, ProvisionError
from dlb.scratch import scratch_folder

__all__ = ["make"]

_BUILD_CONSTRAINTS = Path(__file__).with_name("build-constraints.txt")


def make(
    plan: sources.Plan, folder: Path, lock: int, deadline: float, report: Callable[[str], None]
) -> Environment:
    """Make the environment that ``plan`` describes in ``folder``, which does not exist.

    Args:
        plan: the plan of the environment.
        folder: the folder to make. A failure leaves it without a record.
        lock: the descriptor of the held lock.
        deadline: in terms of ``time.monotonic``.
        report: receives a line of text for each step.

    Raises:
        ProvisionError: the environment could not be made.
        OSError: a file could not be written.
    """
    log = folder.with_name(f"{plan.name}.log")
    log.write_bytes(b"")
    folder.mkdir()
    (folder / record.UNFINISHED).touch()
    settings = from_environment(os.environ)
    python = folder / "bin" / "python"
    worker, adapter = "dlb-worker", plan.distribution

    def uv(step: str, arguments: list[str], making: bool) -> None:
        report(step)
        try:
            with scratch_folder() as temporary:  # uv leaves locks there
                uv_process.run(
                    arguments,
                    environ={**settings.environ, "TMPDIR": str(temporary)},
                    log=log,
                    deadline=deadline,
                    lock=lock,
                    report=report,
                )
        except uv_process.UvFailed as failed:
            reason, remedy = failures.explain(
                failed.output, making=making, python=plan.python, distribution=adapter
            )
        except ProvisionError as error:
            reason, remedy = str(error), "see how far it came"
        else:
            return
        raise ProvisionError(
            f"environment '{plan.name}', {step}: {reason}; {remedy}; uv's whole output: {log}"
        )

    def venv(interpreter: str) -> None:
        # The folder exists already: it has the mark of an unfinished environment.
        uv(
            f"making a virtual environment with Python {interpreter}",
            ["venv", "--allow-existing", "--no-project", f"--python={interpreter}", str(folder)],
            making=True,
        )

    try:
        venv(plan.python)
    except ProvisionError:
        # uv can neither find nor download some old versions, such as 3.6.
        fallback = None if plan.python_request else pyenv_python(plan.python_range)
        if fallback is None:
            raise
        venv(str(fallback))
    _check_python(plan, python)
    # The user's build constraints replace dlb's, which could contradict them.
    build_constraints = [*settings.build_constraints, *map(str, plan.build_constraints)]
    options = [
        *_repeat_option("--constraint", [*settings.constraints, *map(str, plan.constraints)]),
        *_repeat_option("--build-constraints", build_constraints or [str(_BUILD_CONSTRAINTS)]),
        *_repeat_option("--find-links", [*map(str, plan.find_links), *settings.find_links]),
        # Otherwise uv would reuse an earlier build of a package if its pyproject.toml is unchanged.
        # (--refresh-package would be more direct, but uv rejects it together with UV_OFFLINE.)
        *_repeat_option("--reinstall-package", [worker, adapter]),
        *(["--no-index"] if settings.no_index else []),
    ]
    uv(
        f"installing {worker} and {adapter}",
        ["pip", "install", f"--python={python}", *options, "--", *plan.requirements],
        making=False,
    )
    environment = Environment(
        name=plan.name,
        folder=folder,
        python=python,
        distribution=plan.distribution,
        managed=True,
        created=record.now(),
        source=plan.source,
        source_digest=plan.digest,
        python_request=plan.python_request,
        constraint=plan.constraint,
    )
    try:
        version = inspection.packages(environment).get(worker)
    except EnvironmentMissing as error:
        raise ProvisionError(f"{error}; uv's whole output: {log}") from error
    environment = dataclasses.replace(environment, worker_version=version)
    record.write(environment)
    (folder / record.UNFINISHED).unlink()
    report(f"made environment '{plan.name}' in {folder}")
    return environment


def _check_python(plan: sources.Plan, python: Path) -> None:
    """Check that the packages support the interpreter: uv checks only the lower end of a range."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    code, output, error_line = inspection.run_program(
        python, "import sys; print(sys.version.split()[0])"
    )
    if code != 0:
        raise ProvisionError(
            f"environment '{plan.name}': the interpreter made for it does not run: {error_line}; "
            "name another with --python"
        )
    version = output.strip().rstrip("+")
    try:
        fits = SpecifierSet(plan.python_range).contains(version, prereleases=True)
    except InvalidSpecifier as error:
        raise ProvisionError(
            f"environment '{plan.name}': {error}; fix requires-python in the packages of "
            f"{plan.source}"
        ) from error
    if not fits:
        raise ProvisionError(
            f"environment '{plan.name}': Python {version} does not fit: {plan.distribution} needs "
            f"{plan.python_range}; name one that fits with --python, or leave --python out"
        )


def _repeat_option(option: str, values: list[str]) -> list[str]:
    return [word for value in values for word in (option, value)]
