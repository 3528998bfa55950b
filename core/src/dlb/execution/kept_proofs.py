"""Proofs that were made before, kept by the hash of all that they depend on.

A run whose workload, weights, settings, adapters and files are those of a proof uses its checks again. What is
about the timed run itself (its weights, its audit, its export) is checked in every run.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

import msgspec

import dlb
import dlb_graph
from dlb import documents, places
from dlb.environments.inspection import fingerprint
from dlb.errors import RecordError
from dlb.execution.distributed import DISTRIBUTED_STEPS
from dlb.proof import certificate as certificates
from dlb.proof.certificate import Certificate, CheckResult
from dlb.provenance import machine_facts
from dlb.request import Request
from dlb.settings import SETTINGS
from dlb_graph.workload import Data, workload_hash

__all__ = ["find", "is_kept", "keep", "proof_key", "proof_keys", "with_kept"]

#: Environment variables on which no computation depends; any other may change one.
_VOLATILE = (
    "COLUMNS", "LINES", "DLB_HOME", "DLB_TOKEN", "HISTFILE", "HOME", "HOSTNAME", "LANG", "LOGNAME",
    "LS_COLORS", "OLDPWD", "PATH", "PS1", "PWD", "SHELL", "SHLVL", "TERM", "TERM_PROGRAM", "TMPDIR",
    "USER", "VIRTUAL_ENV", "VIRTUAL_ENV_PROMPT", "WINDOWID", "_",
    "KMP_DUPLICATE_LIB_OK", "ORT_DISABLE_TELEMETRY",  # set by what dlb imports, and by dlb
)  # fmt: skip
_VOLATILE_PREFIXES = ("DBUS_", "GIT_", "GPG_", "LC_", "PIP_", "PYTEST_", "SSH_", "UV_", "XDG_")


def proof_key(request: Request) -> str:
    """The hash of everything that a proof depends on; empty if some of it is not known.

    That is the model and how it is trained, the seed and the settings, every file of the adapters'
    environments and of dlb (by size and time of change), the machine, and the environment variables. A proof
    is of noise, so it does not depend on the data set, nor on how long is trained; that of a strategy is of
    the first batches too.
    """
    return proof_keys([request])[0]


def proof_keys(requests: Sequence[Request]) -> list[str]:
    """The key of each request; the files of an environment are looked at once."""
    print_of = cache(fingerprint)
    own_files = [*_files(Path(dlb.__file__).parent), *_files(Path(dlb_graph.__file__).parent)]
    machine = {name: str(value) for name, value in sorted(machine_facts().items())}
    keys = []
    for request in requests:
        prints = [print_of(environment.python) for environment in request.environments]
        known = all(prints)
        keys.append(_key(request, prints, own_files, machine) if known else "")
    return keys


def _key(
    request: Request,
    prints: Sequence[str],
    own_files: Sequence[tuple[str, int, int]],
    machine: dict[str, str],
) -> str:
    workload = msgspec.structs.replace(request.workload, batch_size=1, epochs=1)
    if not request.strategy:  # its workers are compared with one on the run's own batches
        data = Data(name="", augmentation=workload.data.augmentation)
        workload = msgspec.structs.replace(workload, data=data)
    settings = {
        "workload": workload_hash(workload),
        "onnx": request.imported.workload.onnx if request.imported else "",
        # Another constant makes other weights of the same layers.
        "read_as": request.imported.read_as if request.imported else (),
        "adapters": [environment.adapter for environment in request.environments],
        "environments": prints,
        "dlb": own_files,
        "machine": machine,
        "variables": {
            name: value
            for name, value in sorted({**os.environ, **request.variables}.items())
            if name not in _VOLATILE and not name.startswith(_VOLATILE_PREFIXES)
        },
        "variants": {name: dict(value) for name, value in sorted(request.choices.items())},
        "groups": sorted(request.groups),
        "hosts": request.hosts,
        "trajectory_steps": request.trajectory_steps,
        "distributed_steps": min(request.steps, DISTRIBUTED_STEPS) if request.strategy else 0,
    }
    for name, setting in SETTINGS.items():
        if setting.proven and setting.plain:
            settings[name] = getattr(request, name)
    return hashlib.sha256(msgspec.json.encode(settings)).hexdigest()


def find(key: str) -> Certificate | None:
    """The kept proof; None if there is none that can be read."""
    path = _folder() / f"{key}.json"
    if not key or not path.is_file():
        return None
    try:
        return certificates.read(path)
    except RecordError:  # of another version of dlb, or damaged: it is made again
        return None


def is_kept(key: str) -> bool:
    """Whether a proof is kept; that it can be read is not looked at."""
    return bool(key) and (_folder() / f"{key}.json").is_file()


def keep(key: str, certificate: Certificate) -> None:
    """Keep a proof, if every adapter is proven or within rounding. One that cannot be written is not kept."""
    adapters = certificate.judged_adapters
    words = ("proven", "within rounding")
    proven = all(certificate.status(adapter) in words for adapter in adapters)
    if not key or not adapters or not proven or certificate.kept:
        return
    with contextlib.suppress(OSError):
        _folder().mkdir(parents=True, exist_ok=True)
        documents.write_atomically(_folder() / f"{key}.json", documents.encode(certificate))


def with_kept(checks: Iterable[CheckResult], kept: Certificate | None) -> list[CheckResult]:
    """The checks of a run, and those of a kept proof that the run did not make itself."""
    own = list(checks)
    done = {(result.check, result.adapter) for result in own}
    others = kept.checks if kept is not None else ()
    return [each for each in others if (each.check, each.adapter) not in done] + own


def _folder() -> Path:
    return places.home() / "proofs"


def _files(folder: Path) -> list[tuple[str, int, int]]:
    """Every source file below a folder, with its size and its time of change."""
    found = []
    for path in sorted(folder.rglob("*")):
        # In it, an interrupted import leaves files that do not end in .pyc.
        if path.parent.name != "__pycache__" and path.is_file():
            status = path.stat()
            found.append((str(path.relative_to(folder)), status.st_size, status.st_mtime_ns))
    return found
