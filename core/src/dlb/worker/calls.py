"""What a worker can be asked to do, a method each. Arguments and results are JSON; arrays are files.

The order of a run is ``start``, ``build`` (a model each), then ``weights``, ``forward``,
``gradients``, ``train``, ``export`` in any order. docs/protocol.md lists arguments and results.
"""

from __future__ import annotations

import errno
import gc
import itertools
import os
import threading
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dlb.contract import (
    AdoptedModel,
    AdoptRequest,
    BuildRequest,
    LaunchPlan,
    LoadRequest,
    PlanRequest,
    StartRequest,
    StrategySession,
    TrainableModel,
)
from dlb.data.npz import no_room, read_or_map
from dlb.errors import PluginError, UnsupportedError
from dlb.plugins import load_plugins
from dlb.worker import adopted
from dlb.worker.adopted import gradient_arrays, trace_arrays
from dlb.workload import type_name
from dlb.workload.files import from_document
from dlb.workload.shapes import tied_to

#: Bytes of weights of models whose memory is looked for at once when they are dropped: doing so
#: takes a tenth of a second where many modules are imported.
LARGE = 1 << 24


class Calls:
    """A worker's state: its framework, its strategy, and the models it has built."""

    def __init__(self, rank: int, progress: Callable[..., None]) -> None:
        self.rank = rank
        self.progress = progress
        self.plugins = load_plugins()
        self.framework = ""
        self.device = "cpu"
        self.session: StrategySession | None = None
        self.models: dict[int, TrainableModel] = {}
        self.requests: dict[int, BuildRequest] = {}
        self.large: set[int] = set()
        self.adopted: dict[int, AdoptedModel] = {}
        self.numbers = itertools.count(1)

    def answer(self, call: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Carry out a call by name."""
        method = getattr(self, f"call_{call}", None)
        if method is None:
            raise PluginError(f"this worker does not know the call '{call}'; its dlb-core is older")
        result: dict[str, Any] = method(**arguments)
        return result

    def hooked(self, hook: str, **arguments: Any) -> Any:
        """Call a hook of which one plugin must give an answer."""
        found = getattr(self.plugins.hook, hook)(framework=self.framework, **arguments)
        if found is None:
            raise PluginError(f"no plugin answers {hook} for '{self.framework}'")
        return found

    def call_describe(self) -> dict[str, Any]:
        """Adapters, strategies and plugins of this environment; imports no framework."""
        from dlb.description import describe

        return describe(self.plugins)

    def call_plan(self, framework: str, **request: Any) -> dict[str, Any]:
        """The processes of a strategy."""
        self.framework = framework
        self.plugins.adapter(framework)
        asked = PlanRequest(**{**request, "ports": tuple(request["ports"])})
        plan: LaunchPlan | None = self.plugins.hook.dlb_plan(framework=framework, request=asked)
        if plan is None:
            names = [s.name for s in self.plugins.strategies() if framework in s.frameworks]
            raise UnsupportedError(
                f"adapter '{framework}' has no strategy '{asked.strategy}'; "
                f"it has {', '.join(names) or 'none'}"
            )
        return {
            "processes": [
                {"role": p.role, "rank": p.rank, "environment": dict(p.environment)}
                for p in plan.processes
            ],
            "launcher": list(plan.launcher),
            "rank_variables": list(plan.rank_variables),
        }

    def call_serve(self, framework: str, strategy: str, role: str) -> dict[str, Any]:
        """Be a scheduler or a server until training ends."""
        self.framework = framework
        self.hooked("dlb_serve", strategy=strategy, role=role, rank=self.rank)
        return {}

    def call_start(
        self, framework: str, threads: int, device: str, seed: int, strategy: str, workers: int
    ) -> dict[str, Any]:
        """Bring the framework up and join the strategy."""
        from dlb.provenance import worker_facts

        self.framework, self.device = framework, device
        described = self.plugins.adapter(framework)
        request = StartRequest(threads=threads, device=device, seed=seed)  # type: ignore[arg-type]
        facts = self.hooked("dlb_start", request=request)
        if strategy:
            self.session = self.hooked(
                "dlb_join", strategy=strategy, rank=self.rank, workers=workers
            )
        return {
            "framework": described.title,
            "version": facts.version,
            "threads": facts.threads,
            "device": facts.device,
            "build": dict(facts.build),
            **worker_facts(),
        }

    def call_build(
        self,
        workload: dict[str, Any],
        weights: str,
        dtype: str,
        batch_size: int,
        masks: str = "",
        variant: dict[str, str] | None = None,
    ) -> dict[str, Any]:
        """Build a model; the result names it for later calls, and tells of its layers."""
        described = self.plugins.adapter(self.framework)
        read = from_document(workload)
        for node in read.model.nodes:
            kind = type_name(node.layer)
            if kind not in described.layers:
                raise UnsupportedError(
                    f"{described.title} cannot build layer '{node.name}': adapter "
                    f"'{self.framework}' has no {kind}"
                )
        if type_name(read.optimizer) not in described.optimizers:
            raise UnsupportedError(
                f"adapter '{self.framework}' has no optimizer {type_name(read.optimizer)}"
            )
        if read.optimizer.clip_norm and tuple(described.contract) < (1, 3):
            raise UnsupportedError(
                f"adapter '{self.framework}' is made for a contract before 1.3, which does not clip "
                "gradients: optimizer.clip_norm must be 0"
            )
        if read.loss.label_smoothing and tuple(described.contract) < (1, 4):
            raise UnsupportedError(
                f"adapter '{self.framework}' is made for a contract before 1.4, which does not smooth "
                "labels: loss.label_smoothing must be 0"
            )
        tied = [node for node in read.model.nodes if tied_to(node)]
        if tied and tuple(described.contract) < (1, 4):
            raise UnsupportedError(
                f"adapter '{self.framework}' is made for a contract before 1.4, which does not tie "
                f"weights: layer '{tied[0].name}' is tied to '{tied_to(tied[0])}'"
            )
        request = BuildRequest(
            workload=read,
            weights={},
            dtype=dtype,  # type: ignore[arg-type]
            device=self.device,  # type: ignore[arg-type]
            batch_size=batch_size,
            session=self.session,
            masks=read_arrays(masks) if masks else {},
            variant=variant or {},
        )
        described.choices(request.variant)
        size = Path(weights).stat().st_size
        with np.load(weights, allow_pickle=False) as stored:
            # Each is read when the adapter asks for it, and is not held here as well.
            model = self.hooked("dlb_build_model", request=replace(request, weights=stored))
        number = next(self.numbers)
        self.models[number], self.requests[number] = model, replace(request, masks={})
        if size > LARGE:
            self.large.add(number)
        return {"model": number, "layers": dict(model.native_layers())}

    def call_drop(self, model: int) -> dict[str, Any]:
        """Forget a model, so that its memory can go."""
        del (self.adopted if model in self.adopted else self.models)[model]
        self.requests.pop(model, None)
        if model in self.large:
            self.large.remove(model)
            # Models refer to themselves in circles, which Python may be long in looking for.
            gc.collect()
        return {}

    def call_weights(self, model: int, to: str) -> dict[str, Any]:
        """Write every parameter and state, and the optimizer's state where there is one."""
        if model in self.adopted:
            write_arrays(to, self.adopted[model].weights().items())
        else:
            write_arrays(to, weights_and_state(self.models[model]))
        return {}

    def call_forward(
        self, model: int, inputs: str, to: str, training: bool, layers: list[str]
    ) -> dict[str, Any]:
        """Write the values of layers, the last always among them."""
        given = read_arrays(inputs)["inputs"]
        values = self.models[model].forward(given, training=training, layers=layers)
        write_arrays(to, values.items())
        return {}

    def call_gradients(self, model: int, inputs: str, to: str) -> dict[str, Any]:
        """Write ``loss``, ``parameters/NAME`` and ``inputs``."""
        given = read_arrays(inputs)
        found = self.models[model].gradients(given["inputs"], given["labels"])
        write_arrays(to, gradient_arrays(found).items())
        return {}

    def call_train(
        self, model: int, data: str, order: str, via: str, first_step: int, observe: bool, to: str
    ) -> dict[str, Any]:
        """Train over the rows of ``order``; writes what each step cost and lost."""
        from dlb.worker.training import train

        request = self.requests[model]
        arrays, rows = read_or_map(Path(data)), read_arrays(order)
        batches = LoadRequest(
            inputs=arrays["inputs"],
            labels=arrays["labels"],
            order=rows["order"],
            via=via,  # type: ignore[arg-type]
            device=request.device,
            dtype=request.dtype,
            variant=request.variant,
            crops=rows.get("crops"),
        )
        return train(self, self.models[model], request, batches, first_step, observe, to)

    def call_predict(self, model: int, data: str, batch_size: int, to: str) -> dict[str, Any]:
        """Write the ``logits`` of every sample, in batches; the last one is filled up, then cut."""
        given = read_or_map(Path(data))["inputs"]
        held = self.models[model]
        last = self.requests[model].workload.model.nodes[-1].name
        parts = []
        for start in range(0, len(given), batch_size):
            batch = given[start : start + batch_size]
            short = batch_size - len(batch)
            if short:
                batch = np.concatenate([batch, np.repeat(batch[-1:], short, axis=0)])
            parts.append(held.forward(batch)[last][: batch_size - short])
            self.progress(sample=min(start + batch_size, len(given)))
        write_arrays(to, [("logits", np.concatenate(parts))])
        return {}

    def call_export(self, model: int, to: str) -> dict[str, Any]:
        """Write the model as ONNX with the framework's exporter."""
        exporter = self.hooked("dlb_export_onnx", model=self.models[model], path=Path(to))
        if model in self.large:
            # Chainer's exporter leaves every layer's value in circles, and forward is next.
            gc.collect()
        return {"exporter": exporter, "bytes": Path(to).stat().st_size}

    def call_adopt(self, factory: str, folder: str, inputs: str, dtype: str) -> dict[str, Any]:
        """Take in a model that somebody wrote; the result describes it and names it."""
        contract = self.plugins.adapter(self.framework).contract
        request = AdoptRequest(
            make=adopted.factory(factory, folder),
            inputs=read_arrays(inputs)["inputs"] if inputs else None,
            dtype=dtype,  # type: ignore[arg-type]
            device=self.device,  # type: ignore[arg-type]
        )
        model = self.plugins.hook.dlb_adopt_model(framework=self.framework, request=request)
        if model is None:
            raise UnsupportedError(
                f"adapter '{self.framework}', made for contract {contract[0]}.{contract[1]}, cannot "
                "take in a model written by hand; it needs the hook dlb_adopt_model of contract 1.1"
            )
        number = next(self.numbers)
        self.adopted[number] = model
        return {"model": number, **adopted.described(model)}

    def call_load(self, model: int, weights: str) -> dict[str, Any]:
        """Set parameters and states of a model that was taken in."""
        self.adopted[model].load_weights(read_arrays(weights))
        return {}

    def call_trace(
        self, model: int, inputs: str, to: str, training: bool, layers: list[str]
    ) -> dict[str, Any]:
        """One pass of a model that was taken in: outputs, calls of layers, values of some."""
        given = read_arrays(inputs)["inputs"]
        trace = self.adopted[model].forward(given, training=training, layers=layers)
        told, arrays = trace_arrays(trace)
        write_arrays(to, arrays.items())
        return told

    def call_pull_back(self, model: int, inputs: str, to: str, training: bool) -> dict[str, Any]:
        """Write gradients of a model that was taken in, for given cotangents of its outputs."""
        given = read_arrays(inputs)
        cotangents = [given[f"cotangents/{number}"] for number in range(len(given) - 1)]
        found = self.adopted[model].gradients(given["inputs"], cotangents, training=training)
        write_arrays(to, gradient_arrays(found).items())
        return {}

    def call_leave(self) -> dict[str, Any]:
        """Leave the strategy in an orderly way."""
        if self.session is not None:
            self.session.leave()
        return {"threads": threading.active_count(), "pid": os.getpid()}


def read_arrays(path: str) -> dict[str, Any]:
    """Arrays of an .npz file; pickled ones are refused."""
    with np.load(path, allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}


def weights_and_state(model: TrainableModel) -> Iterator[tuple[str, Any]]:
    """Every parameter and state, then the optimizer's: copies of both are not held at once."""
    yield from model.weights().items()
    for name, array in model.optimizer_state().items():
        yield f"optimizer/{name}", array


def write_arrays(path: str, arrays: Iterable[tuple[str, Any]]) -> None:
    """Write an .npz file as ``numpy.savez`` does, of arrays that come one by one.

    Raises:
        PluginError: one is of objects.
        RequestError: there is no room for them.
    """
    try:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
            for name, array in arrays:
                if np.asarray(array).dtype.hasobject:
                    raise PluginError("an adapter gave an array of objects; only numbers are sent")
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):  # of the adapter that gives them
            raise
        raise no_room(Path(path), error) from None
