"""What a worker can be asked to do, a method each. Arguments and results are JSON; arrays are files.

The order of a run is ``start``, ``build`` (a model each), then ``weights``, ``forward``, ``gradients``,
``train``, ``export`` in any order. The reference of the protocol lists arguments and results.
"""

import gc
import itertools
import os
import threading
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    Iterator,
    List,
    Mapping,
    Optional,
    Set,
    Tuple,
    Union,
)

import numpy as np

from dlb_worker.arrays import read_arrays, read_or_map, write_arrays
from dlb_worker.contract import (
    BuildRequest,
    DataRequest,
    ForwardPass,
    Gradients,
    LayerCall,
    PeakRequest,
    PlanRequest,
    StartRequest,
    UserModelRequest,
)
from dlb_worker.errors import PluginError, UnsupportedError
from dlb_worker.model import read_workload
from dlb_worker.native import BuiltModel, StrategySession, UserModel
from dlb_worker.parts import in_parts, mean_gradients
from dlb_worker.placement import of_replica, with_marks
from dlb_worker.plugins import load_plugins
from dlb_worker.protocol import REPORT_SECONDS
from dlb_worker.sampling import drawn
from dlb_worker.user_code import factory as user_factory
from dlb_worker.user_code import trainer as user_trainer

if TYPE_CHECKING:
    from dlb_worker.training import Training

#: Bytes of weights above which a dropped model's memory is looked for at once; looking takes a tenth
#: of a second where many modules are imported.
LARGE = 1 << 24


class Calls:
    """A worker's state: its framework, its strategy, and the models that it holds."""

    def __init__(self, rank: int, progress: Callable[..., None]) -> None:
        self.rank = rank
        self.progress = progress
        self.plugins = load_plugins()
        self.framework = ""
        self.device = "cpu"
        self.session: Optional[StrategySession] = None
        self.models: Dict[int, Union[BuiltModel, UserModel]] = {}
        self.requests: Dict[int, BuildRequest] = {}
        self.large: Set[int] = set()
        #: By model, how many rows the mask of each dropout has that was built with one.
        self.mask_rows: Dict[int, Dict[str, int]] = {}
        self.numbers = itertools.count(1)
        self.training: Optional[Training] = None

    def answer(self, call: str, arguments: Dict[str, Any]) -> Dict[str, Any]:
        """Carry out a call by name."""
        method = getattr(self, f"call_{call}", None)
        if method is None:
            raise PluginError(f"this worker does not know the call '{call}'; its dlb is older")
        result: Dict[str, Any] = method(**arguments)
        return result

    def ask(self, hook: str, **arguments: Any) -> Any:
        """Call a hook that one plugin must answer."""
        found = getattr(self.plugins.hook, hook)(framework=self.framework, **arguments)
        if found is None:
            raise PluginError(f"no plugin answers {hook} for '{self.framework}'")
        return found

    def call_describe(self) -> Dict[str, Any]:
        """Adapters, strategies and plugins of this environment; imports no framework."""
        from dlb_worker.description import describe

        return describe(self.plugins)

    def call_plan(self, framework: str, **request: Any) -> Dict[str, Any]:
        """The processes of a strategy."""
        self.framework = framework
        self.plugins.adapter(framework)
        request = {k: tuple(v) if isinstance(v, list) else v for k, v in request.items()}
        asked = PlanRequest(**request)
        plan = self.plugins.hook.dlb_plan(framework=framework, request=asked)
        if plan is None:
            names = [
                each.name for each in self.plugins.strategies() if framework in each.frameworks
            ]
            raise UnsupportedError(
                f"adapter '{framework}' has no strategy '{asked.strategy}'; "
                f"it has {', '.join(names) or 'none'}"
            )
        ranks = sum(process.role == "worker" for process in plan.processes)
        if plan.shares and ranks % plan.shares:
            raise PluginError(
                f"strategy '{asked.strategy}' has {plan.shares} shares of a batch for {ranks} workers"
            )
        return {
            "processes": [asdict(process) for process in plan.processes],
            "launcher": list(plan.launcher),
            "rank_variables": list(plan.rank_variables),
            "shares": plan.shares,
        }

    def call_serve(self, framework: str, strategy: str, role: str) -> Dict[str, Any]:
        """Be a scheduler or a server until training ends."""
        self.framework = framework
        self.ask("dlb_serve", strategy=strategy, role=role, rank=self.rank)
        return {}

    def call_start(
        self, framework: str, threads: int, device: str, seed: int, strategy: str, workers: int
    ) -> Dict[str, Any]:
        """Bring the framework up and join the strategy."""
        from dlb_worker.facts import worker_facts

        self.framework, self.device = framework, device
        description = self.plugins.adapter(framework)
        asked = StartRequest(threads, device, seed, strategy, workers)
        facts = self.ask("dlb_start", request=asked)
        if strategy:
            self.session = self.ask("dlb_join", strategy=strategy, rank=self.rank, workers=workers)
        return dict(
            worker_facts(),
            framework=description.title,
            version=facts.version,
            threads=facts.threads,
            device=facts.device,
            build=dict(facts.build),
        )

    def call_build(
        self,
        workload: Dict[str, Any],
        weights: str,
        dtype: str,
        batch_size: int,
        masks: str,
        variant: Dict[str, str],
        seed: int,
        share: float = 1.0,
    ) -> Dict[str, Any]:
        """Build a model; the result numbers it for later calls and describes its layers."""
        request = BuildRequest(
            workload=read_workload(workload),
            weights={},
            dtype=dtype,
            device=self.device,
            batch_size=batch_size,
            session=self.session,
            masks=read_arrays(masks) if masks else {},
            variant=variant,
            seed=seed,
            share=share,
        )
        with np.load(weights, allow_pickle=False) as stored:
            # Each is read when the adapter asks for it, and is not held here as well.
            model = self.ask("dlb_build_model", request=replace(request, weights=stored))
        model.session = self.session
        number = next(self.numbers)
        self.models[number], self.requests[number] = model, replace(request, masks={})
        self.mask_rows[number] = {name: len(mask) for name, mask in request.masks.items()}
        if Path(weights).stat().st_size > LARGE:
            self.large.add(number)
        return {"model": number, "layers": dict(model.describe_layers())}

    def call_load(self, factory: str, folder: str, inputs: str, dtype: str) -> Dict[str, Any]:
        """Load a model that a user wrote; the result numbers and describes it."""
        request = UserModelRequest(
            make=user_factory(factory, folder),
            inputs=_inputs(read_arrays(inputs)) if inputs else None,
            dtype=dtype,
            device=self.device,
        )
        model = self.ask("dlb_load_user_model", request=request)
        model.example = request.inputs
        number = next(self.numbers)
        self.models[number] = model
        shape = model.input_shape()
        return {
            "model": number,
            "layers": [asdict(layer) for layer in model.layers()],
            "parameters": [asdict(parameter) for parameter in model.describe_parameters()],
            "input_shape": None if shape is None else list(shape),
        }

    def call_set_dropout(self, model: int, active: bool) -> Dict[str, Any]:
        """Switch the dropout of a user's model off or on."""
        held = self.models[model]
        if isinstance(held, BuiltModel):
            raise PluginError("a built model's dropout is given by masks")
        held.set_dropout(active)
        return {}

    def call_bypass(self, model: int, layers: List[str]) -> Dict[str, Any]:
        """Let layers of a user's model return their first input."""
        held = self.models[model]
        if isinstance(held, BuiltModel):
            raise PluginError("a built model draws nothing that is not known")
        held.bypass(layers)
        return {}

    def call_drop(self, model: int) -> Dict[str, Any]:
        """Forget a model, so that its memory can go."""
        del self.models[model]
        self.requests.pop(model, None)
        self.mask_rows.pop(model, None)
        if model in self.large:
            self.large.remove(model)
            # Models refer to themselves in circles, which Python may look for late.
            gc.collect()
        return {}

    def call_weights(self, model: int, to: str) -> Dict[str, Any]:
        """Write every parameter and state, and the optimizer's state as ``optimizer/NAME``."""
        held = self.models[model]
        for number in held.replicas():
            write_arrays(of_replica(Path(to), number), _weights_and_state(held))
        return {"replicas": number + 1}

    def call_set_weights(self, model: int, weights: str) -> Dict[str, Any]:
        """Set parameters and states by name."""
        self.models[model].load_weights(read_arrays(weights))
        return {}

    def call_forward(
        self, model: int, inputs: str, to: str, training: bool, layers: List[str]
    ) -> Dict[str, Any]:
        """One pass: the outputs, and the values of some layers."""
        held = self.models[model]
        given = _inputs(read_arrays(inputs))
        if isinstance(held, BuiltModel):
            values = held.forward(given, training=training, layers=layers)
            found = _forward_pass(values, self.requests[model].workload.model.last)
        else:
            found = held.forward(given, training=training, layers=layers)
        result, arrays = _write_once(found)
        write_arrays(Path(to), arrays.items())
        return result

    def call_gradients(self, model: int, inputs: str, to: str, training: bool) -> Dict[str, Any]:
        """Write the gradients of the loss, or of outputs times ``cotangents/N`` of a user's model."""
        arrays, held = read_arrays(inputs), self.models[model]
        if isinstance(held, BuiltModel):
            found = held.gradients(arrays["inputs"], arrays["labels"])
        else:
            count = sum(name.startswith("cotangents/") for name in arrays)
            cotangents = [arrays[f"cotangents/{number}"] for number in range(count)]
            found = held.vjp(_inputs(arrays), cotangents, training=training)
        arrays = _gradient_arrays(found)
        arrays.update(with_marks(found.parameters, held.marks(), "parameters/"))
        write_arrays(Path(to), arrays.items())
        return {}

    def call_own_steps(
        self, model: int, trainer: str, folder: str, data: str, observed: List[int], to: str
    ) -> Dict[str, Any]:
        """Train a user's model by its own program; writes the losses, and weights after some steps."""
        held, arrays = self.models[model], read_arrays(data)
        if isinstance(held, BuiltModel):
            raise PluginError("a built model is trained by its workload")
        count = min(len(array) for array in arrays.values())
        batches = ({name: array[step] for name, array in arrays.items()} for step in range(count))
        found: Dict[str, Any] = {}
        losses = []
        for step, loss in enumerate(held.own_steps(user_trainer(trainer, folder), batches), 1):
            losses.append(loss)
            self.progress(step=step, loss=loss)
            if step in observed:
                weights = held.weights().items()
                found.update({f"weights/{step}/{name}": array for name, array in weights})
        write_arrays(Path(to), {"losses": np.array(losses), **found}.items())
        return {}

    def call_train(
        self,
        model: int,
        data: str,
        order: str,
        input_mode: str,
        first_step: int,
        observe: bool,
        to: str,
    ) -> Dict[str, Any]:
        """Train over the rows of ``order``; writes the time and the loss of each step."""
        training = self._training(model, data, order, input_mode, first_step, observe)
        training.run(training.steps)
        return training.end(Path(to))

    def call_begin_training(
        self, model: int, data: str, order: str, input_mode: str, first_step: int, observe: bool
    ) -> Dict[str, Any]:
        """Begin a training that goes on in parts."""
        self.training = self._training(model, data, order, input_mode, first_step, observe)
        return {"clock": self.training.clock()}

    def call_train_steps(self, steps: int) -> Dict[str, Any]:
        """Take the next steps."""
        self._running().run(steps)
        return {}

    def call_advance(self, replica: int = 0) -> Dict[str, Any]:
        """Take the next part of a step, in this worker, or one replica of it, alone; its name."""
        return {"phase": self._running().advance(replica)}

    def call_audit_step(
        self,
        to: str,
        dropout_seed: Optional[int],
        elements: Optional[int],
        seed: int,
        whole: bool,
    ) -> Dict[str, Any]:
        """Take the next step; write the batch, and weights and state before and after it."""
        return self._running().audit(Path(to), dropout_seed, elements, seed, whole)

    def call_audit_gradients(
        self,
        model: int,
        steps: List[str],
        weights: str,
        elements: Optional[int],
        seed: int,
        to: str,
    ) -> Dict[str, Any]:
        """Write gradients of a built model at an audited step's weights and on its batch.

        Args:
            steps: by rank, what each worker wrote of the step: the batch is all of theirs.
            weights: .npz file of the weights; "" for those of ``steps``.
        """
        held = self._built(model)
        workers = [read_or_map(Path(path)) for path in steps]
        given = read_arrays(weights) if weights else _part(workers[0], "weights/")
        held.load_weights(given)
        names = ("inputs", "labels", *(name for name in workers[0] if name.startswith("masks/")))
        count = self.requests[model].workload.optimizer.accumulate
        by_worker = [in_parts(count, *map(arrays.get, names)) for arrays in workers]
        # The first parts of all workers are one, and so on.
        found = mean_gradients(
            self._gradients(model, dict(zip(names, map(np.concatenate, zip(*parts)))))
            for parts in zip(*by_worker)
        )
        arrays = {"loss": np.asarray(found.pop("loss"))}
        for name, gradient in found.items():
            norm = np.linalg.norm(np.asarray(gradient, "float64"))
            arrays[f"norms/{name}"] = np.asarray(norm)
            arrays[f"gradients/{name}"] = drawn(name, gradient, elements, seed)
        write_arrays(Path(to), arrays.items())
        return {}

    def _gradients(self, model: int, batch: Mapping[str, Any]) -> Dict[str, Any]:
        """``loss``, and gradients by ``layer.role``, of a batch as a step got it, with its masks."""
        held, workload = self._built(model), self.requests[model].workload
        masks = _part(batch, "masks/")
        if masks:
            rows = self.mask_rows[model]
            held.load_masks({name: _filled(mask, rows[name]) for name, mask in masks.items()})
        inputs, labels = batch["inputs"], batch["labels"]
        found = held.gradients(
            inputs.astype(held.dtype if inputs.dtype.kind == "f" else "int64"),
            labels.astype("int64" if workload.loss.of_classes else held.dtype),
        )
        return dict(found.parameters, loss=found.loss)

    def call_end_training(self, to: str) -> Dict[str, Any]:
        """End the training; writes the time and the loss of each step."""
        training, self.training = self._running(), None
        return training.end(Path(to))

    def call_time_phases(
        self, model: int, data: str, order: str, input_mode: str
    ) -> Dict[str, Any]:
        """Take steps over the rows of ``order`` in their parts: seconds of each, or why there are none."""
        from dlb_worker.training import time_phases

        held, request = self._built(model), self._data(model, data, order, input_mode)
        try:
            seconds = time_phases(self, held, self.requests[model], request)
        except UnsupportedError as error:
            return {"seconds": {}, "unknown": str(error)}
        return {"seconds": seconds, "unknown": ""}

    def _training(
        self, model: int, data: str, order: str, input_mode: str, first_step: int, observe: bool
    ) -> "Training":
        from dlb_worker.training import Training

        request = self._data(model, data, order, input_mode)
        rates, build = read_arrays(order)["rates"], self.requests[model]
        return Training(self, self._built(model), build, request, rates, first_step, observe)

    def _data(self, model: int, data: str, order: str, input_mode: str) -> DataRequest:
        build, arrays, rows = self.requests[model], read_or_map(Path(data)), read_arrays(order)
        return DataRequest(
            inputs=arrays["inputs"],
            labels=arrays["labels"],
            order=rows["order"],
            input_mode=input_mode,
            device=build.device,
            dtype=build.dtype,
            variant=build.variant,
            crops=rows.get("crops"),
        )

    def _running(self) -> "Training":
        if self.training is None:
            raise PluginError("no training has begun; call begin_training first")
        return self.training

    def call_predict(self, model: int, data: str, batch_size: int, to: str) -> Dict[str, Any]:
        """Write the ``logits`` of every sample, in batches; the last one is filled up, then cut."""
        inputs = read_or_map(Path(data))["inputs"]
        held, last = self._built(model), self.requests[model].workload.model.last
        training = self.training if self.training and self.training.model is held else None
        before = training.digests() if training else {}
        parts, seconds, reported = [], 0.0, time.perf_counter()
        for start in range(0, len(inputs), batch_size):
            batch = inputs[start : start + batch_size]
            short = batch_size - len(batch)
            if short:
                batch = np.concatenate([batch, np.repeat(batch[-1:], short, axis=0)])
            began = time.perf_counter()
            logits = held.forward(batch)[last]
            seconds += time.perf_counter() - began
            parts.append(logits[: batch_size - short])
            if began - reported > REPORT_SECONDS:
                self.progress(sample=min(start + batch_size, len(inputs)))
                reported = began
        write_arrays(Path(to), [("logits", np.concatenate(parts))])
        if training is None:
            return {"seconds": seconds}
        from dlb_worker.training import differing

        return {"seconds": seconds, "changed": differing(before, training.digests())}

    def call_export(self, model: int, to: str) -> Dict[str, Any]:
        """Write the model as ONNX with the framework's exporter."""
        exporter = self.ask("dlb_export_onnx", model=self.models[model], path=Path(to))
        if model in self.large:
            # Chainer's exporter leaves every layer's value in circles, and forward is next.
            gc.collect()
        return {"exporter": exporter, "bytes": Path(to).stat().st_size}

    def call_peak(
        self, work: str, dtype: str, device: str, threads: int, seconds: float
    ) -> Dict[str, Any]:
        """Time a large matrix product or a large copy, for some seconds."""
        from dlb_worker.peak import measure

        return measure(
            lambda request: self.ask("dlb_peak_work", request=request),
            self.ask("dlb_clock", device=device),
            PeakRequest(work, dtype, device, threads),
            seconds,
        )

    def call_leave(self) -> Dict[str, Any]:
        """Leave the strategy in an orderly way."""
        if self.session is not None:
            self.session.leave()
        return {"threads": threading.active_count(), "pid": os.getpid()}

    def _built(self, model: int) -> BuiltModel:
        held = self.models[model]
        if not isinstance(held, BuiltModel):
            raise PluginError("a user's model is not trained here; build one from a workload")
        return held


def _weights_and_state(model: Union[BuiltModel, UserModel]) -> Iterator[Tuple[str, Any]]:
    """Every parameter and state, then the optimizer's: copies of both are not held at once."""
    marks = model.marks()
    yield from with_marks(model.weights(), marks)
    if isinstance(model, BuiltModel):
        state = model.optimizer_state().items()
        yield from with_marks({f"optimizer/{name}": array for name, array in state}, marks)


def _inputs(arrays: Mapping[str, Any]) -> Any:
    """``inputs`` of a file, or several ``inputs/NAME`` by name."""
    if "inputs" in arrays:
        return arrays["inputs"]
    start = "inputs/"
    return {name[len(start) :]: array for name, array in arrays.items() if name.startswith(start)}


def _forward_pass(values: Mapping[str, Any], last: str) -> ForwardPass:
    """A built model's values of layers as a pass; the last layer's is the output."""
    calls = tuple(LayerCall(name, None, value) for name, value in values.items())
    return ForwardPass(outputs=(values[last],), calls=calls)


def _write_once(found: ForwardPass) -> Tuple[Dict[str, Any], Dict[str, Any]]:
    """The result of a pass, and its arrays; an array that occurs twice is written once."""
    numbers: Dict[int, int] = {}
    arrays: Dict[str, Any] = {}

    def number(array: Any) -> Optional[int]:
        if array is None:
            return None
        if id(array) not in numbers:
            numbers[id(array)] = len(numbers)
            arrays[f"values/{numbers[id(array)]}"] = array
        return numbers[id(array)]

    calls = [
        {
            "layer": call.layer,
            "inputs": number(call.inputs),
            "output": number(call.output),
            "others": [number(array) for array in call.others],
            "dropout": None if call.dropout is None else asdict(call.dropout),
        }
        for call in found.calls
    ]
    outputs = [number(output) for output in found.outputs]
    return {"outputs": outputs, "names": list(found.names), "calls": calls}, arrays


def _part(arrays: Mapping[str, Any], prefix: str) -> Dict[str, Any]:
    """The arrays whose names begin so, by the rest of their names."""
    return {name[len(prefix) :]: array for name, array in arrays.items() if name.startswith(prefix)}


def _filled(mask: np.ndarray, rows: int) -> np.ndarray:
    """A mask with rows of ones after its own, which no batch reaches."""
    filled = np.ones((rows,) + mask.shape[1:], mask.dtype)
    filled[: len(mask)] = mask
    return filled


def _gradient_arrays(found: Gradients) -> Dict[str, Any]:
    """``loss``, ``parameters/NAME``, ``states/NAME`` and ``inputs``, as they are written."""
    arrays = {f"parameters/{name}": array for name, array in found.parameters.items()}
    arrays.update({f"states/{name}": array for name, array in found.states.items()})
    arrays["loss"] = np.asarray(found.loss)
    arrays.update({f"inputs/{name}": array for name, array in found.several.items()})
    if found.inputs is not None:
        arrays["inputs"] = found.inputs
    return arrays
