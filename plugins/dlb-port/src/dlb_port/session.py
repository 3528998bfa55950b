"""The models of one port in their workers: start, load and match them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from dlb.adapters import AdapterEnvironment
from dlb.capabilities import Capabilities, capabilities_of
from dlb.errors import DlbError, RequestError, UnsupportedError, WorkerRaised
from dlb.supervision.group import Launch, worker_group
from dlb.supervision.remote import start
from dlb_port.attention import with_attention_joined
from dlb_port.captures import CaptureFile, Recording
from dlb_port.culprit import output_figures
from dlb_port.inputs import (
    LAYOUTS,
    Inputs,
    InputSpec,
    in_dtype,
    in_model_layout,
    make_inputs,
    to_canonical_layout,
)
from dlb_port.matching import MatchableModel, Proposal, propose
from dlb_port.model import Model
from dlb_port.onnx_model import OnnxModel
from dlb_port.recording import ModelHandle, RecordingModel
from dlb_port.remote_model import RemoteUserModel
from dlb_port.stacked import nearest
from dlb_port.varied import varied
from dlb_port.weight_map import ModelMap, Pair, WeightMap, carry, mapped_pairs
from dlb_worker.contract import ForwardPass

__all__ = ["PortSession", "check_user_models"]

Array = npt.NDArray[Any]


class PortSession:
    """The models of one request and their workers."""

    def __init__(
        self,
        models: Mapping[str, str],
        weight_map: WeightMap,
        axis_orders: Mapping[str, str],
        output_orders: Mapping[str, str | tuple[str, ...]],
        folders: Mapping[str, Path],
        scratch: Path,
        report: Callable[[str], None],
        against: CaptureFile | None = None,
        dtype: str = "float64",
    ) -> None:
        """Prepare a session.

        Args:
            models: factories by name, the reference first; that of ``against`` is not called.
            folders: where their modules are searched and run.
            against: the capture of the reference, if the reference does not run here.
            dtype: that of all models but the reference, which is made in float64 first.
        """
        self.factories = models
        self.against, self.dtype = against, dtype
        self.weight_map = weight_map
        self.axis_orders, self.output_orders = axis_orders, output_orders
        self.folders, self.scratch, self.report = folders, scratch, report
        self.groups: dict[str, Any] = {}
        self.versions: dict[str, str] = {}
        self.features: dict[str, Collection[str]] = {}
        self.models: dict[str, Model] = {}
        #: Where the reference's answers are kept, if they are recorded, and its recorders by dtype.
        self.recording: Recording | None = None
        self.recorders: dict[str, RecordingModel] = {}
        #: Models that are ONNX files, in float64, by name. They need no worker.
        self.files: dict[str, onnx.ModelProto] = {}
        #: Their large weights (dlb_graph.truth.held).
        self.held: list[Array] = []
        #: What every model is run on when it is made.
        self.example: Inputs = {}
        #: The model whose input shape is used; "" if the user gave the input.
        self.shape_source = ""

    def start(
        self,
        stack: ExitStack,
        environments: Mapping[str, AdapterEnvironment],
        launch: Launch,
        seed: int,
    ) -> None:
        """Start a worker and the framework for each model that runs here.

        Args:
            environments: the environment of each model's adapter, by the model's name.
        """
        if self.against is not None:
            self.versions[self.reference] = self.against.capture.framework
            self.features[self.reference] = ()
        for name, environment in environments.items():
            self.report(f"{name}: starting")
            place = self.scratch / name
            place.mkdir()
            adapter, python = environment.adapter, environment.python
            own_launch = replace(launch, adapter=adapter, python=python, scratch=place, name=name)
            group = self.groups[name] = stack.enter_context(worker_group(own_launch))
            facts = start(group, threads=launch.threads, device=launch.device, seed=seed)[0]
            self.versions[name] = f"{facts['framework']} {facts['version']}"
            capabilities = capabilities_of(group.call("describe")[0], environment.adapter)
            check_user_models(capabilities)
            self.features[name] = capabilities.features

    def make_model(self, name: str, inputs: Inputs | None, dtype: str = "float64") -> ModelHandle:
        """Make a model with its factory, or read it from its file; that of a capture is the recorded one.

        Args:
            inputs: example inputs in the model's layout; None if they are not known yet.

        Raises:
            RequestError: the model cannot be made.
        """
        if self.against is not None and name == self.reference:
            return self.against.model(dtype)
        if name in self.files:
            known = self.models.get(name)
            if dtype == "float32" and known is not None and isinstance(known.remote, OnnxModel):
                return known.remote.in_float32()
            return OnnxModel(name, self.files[name], inputs)
        made = self._call_factory(name, inputs, dtype)
        if self.recording is None or name != self.reference:
            return made
        self.recorders[dtype] = RecordingModel(made, self.recording.keep)
        return self.recorders[dtype]

    def _call_factory(self, name: str, inputs: Inputs | None, dtype: str) -> RemoteUserModel:
        try:
            return RemoteUserModel(
                self.groups[name], self.factories[name], self.folders[name], inputs, dtype
            )
        except DlbError as error:
            log = self.scratch / name / "worker-0.log"
            shown = error.log or (str(log) if _file_size(log) else None)
            raise RequestError(
                error.message, adapter=error.adapter, path=error.path or None, log=shown
            ) from None

    def made_again(self, name: str, inputs: Inputs) -> dict[str, Array]:
        """Arrays of a model that is not trained, as another call of its factory makes them.

        Numbers that a factory draws at random differ. A file, and a factory that fails, make none again.
        """
        if self.against is not None and name == self.reference:
            return self.against.arrays(self.against.capture.drawn)
        model = self.models[name]
        untrained = [each.name for each in model.remote.parameters.values() if not each.trained]
        if name in self.files or not untrained:
            return {}
        dtype = model.remote.dtype
        try:
            own_inputs = in_model_layout(in_dtype(inputs, dtype), self.axis_orders[name], name)
            again = self._call_factory(name, own_inputs, dtype)
            weights = again.weights()
            again.drop()
        except DlbError:
            return {}
        return {parameter: weights[parameter] for parameter in untrained if parameter in weights}

    def inputs(self, input_spec: InputSpec) -> dict[str, Array]:
        """The inputs, with the shapes that the user gave or the one that a model declares.

        Raises:
            RequestError: no shape is known, or the input cannot be made.
        """
        if self.against is not None:
            return self.against.arrays(self.against.capture.inputs)
        if input_spec.file is not None or input_spec.shapes:
            return make_inputs(input_spec)
        problems = []
        for name in self.factories:
            try:
                model = self.make_model(name, None)
            except RequestError as error:
                problems.append(error)
                continue
            shape = model.input_shape
            model.drop()
            if shape is not None and min(shape, default=1) > 0:
                self.shape_source = name
                canonical = to_canonical_layout(np.empty((1, *shape), bool), self.axis_orders[name])
                return make_inputs(replace(input_spec, shapes={"": canonical.shape[1:]}))
        if problems:
            raise problems[0]
        raise RequestError(
            "none of the models tells the shape of its input; give that of one sample, such as "
            "--input-shape 3,32,32 (with --tokens N for integers below N), or an array with --input"
        )

    def load(self, inputs: Inputs) -> None:
        """Make every model in float64, and run it once.

        Raises:
            RequestError: a model cannot be made, or cannot read the inputs.
        """
        passes = {}
        self.example = inputs
        for name in self.factories:
            captured = self.against is not None and name == self.reference
            made_by = self.factories[name]
            self.report(
                f"{name}: {made_by}, captured" if captured else f"{name}: loading {made_by}"
            )
            model_map = self.weight_map.models.get(name, ModelMap())
            model_inputs = in_model_layout(inputs, self.axis_orders[name], name)
            dtype = "float64" if name == self.reference else self.dtype
            remote = self.make_model(name, in_dtype(model_inputs, dtype), dtype)
            self._check_shape(remote, inputs, model_inputs)
            outputs = self.output_orders.get(name) or model_map.output
            model = Model(remote, self.axis_orders[name], outputs, model_map.leave)
            try:
                passes[name] = model.forward(inputs)
            except WorkerRaised as error:
                shapes = ", ".join(str(list(array.shape)) for array in model_inputs.values())
                raise RequestError(
                    f"{error.message}: its model cannot be run on an input of shape {shapes}"
                    f"{self._layout_advice(remote, inputs)}",
                    adapter=error.adapter,
                    log=error.log or None,
                ) from None
            model.calls = [call.layer for call in passes[name].calls]
            self.models[name] = model
        for name, model in self.models.items():
            model.align_outputs(passes[name], passes[self.reference])
        for name in self.files:
            self._adopt_constants(name)

    def _adopt_constants(self, name: str) -> None:
        """Let a file count constants as parameters where another model has one, or the map names it."""
        remote = self.models[name].remote
        assert isinstance(remote, OnnxModel)
        others = [
            parameter
            for other, model in self.models.items()
            if other not in self.files
            for parameter in model.remote.parameters.values()
        ]
        model_map = self.weight_map.models.get(name, ModelMap())
        named = {*model_map.leave, *(entry.to for entry in model_map.weights or ())}
        if name == self.reference:
            for each in self.weight_map.models.values():
                named.update(entry.source for entry in each.weights or ())
        remote.adopt(others, named)

    def folding_advice(self) -> str:
        """What to do if an exporter folded batch normalisations into the layers before; "" if none did."""
        counts = {
            name: sum(layer.kind == "batch_norm" for layer in model.remote.layers.values())
            for name, model in self.models.items()
        }
        most = max(counts.values())
        fewer = next((name for name in self.files if counts[name] < most), None)
        if fewer is None:
            return ""
        return (
            f". {self.factories[fewer]} has {counts[fewer]} batch normalisations of {most}: its exporter "
            "folded them into the layers before them. Export it without that; in torch.onnx.export with "
            "dynamo=True, optimize=False, or with dynamo=False, training=TrainingMode.PRESERVE"
        )

    def load_float32(self, name: str, inputs: Inputs, weights: Mapping[str, Array]) -> Model:
        """Make a model again in float32. After this call the worker computes in float32 only.

        Some frameworks have one default dtype for all models.

        Args:
            weights: by the model's own names.

        Raises:
            RequestError: the model cannot be made in float32.
        """
        model = self.models[name]
        if model.remote.dtype == "float32":
            return model
        float32_inputs = in_model_layout(in_dtype(inputs, "float32"), model.input_layout, name)
        remote = self.make_model(name, float32_inputs, "float32")
        remote.load_weights(
            {parameter: array.astype(np.float32) for parameter, array in weights.items()}
        )
        return model.with_remote(remote)

    def _check_shape(self, remote: ModelHandle, inputs: Inputs, model_inputs: Inputs) -> None:
        if not _fits(remote, model_inputs):
            (model_input,) = model_inputs.values()
            assert remote.input_shape is not None
            raise RequestError(
                f"its model reads samples of shape {list(remote.input_shape)} (-1 is any); it is given "
                f"{list(model_input.shape[1:])}{self._layout_advice(remote, inputs)}",
                adapter=remote.name,
            )

    def _layout_advice(self, remote: ModelHandle, inputs: Inputs) -> str:
        """How to give another order of a model's axes, if the model can read its inputs then; else "".

        If the shape comes from another model, it is that model's order that was not given.
        """
        name, source = remote.name, self.shape_source
        if source and not self.axis_orders[source] and source != name:
            of, told = (
                source,
                f". The shape is what '{source}' tells; if the order of its axes is not",
            )
            told += " the canonical one, say so"
        else:
            of, told = name, ". If the order of its axes is not the canonical one, say so"
        if self.axis_orders[of]:
            return ""
        for word, axes in LAYOUTS.items():
            if not any(len(axes) == array.ndim for array in inputs.values()):
                continue
            if of == name:
                trial = in_model_layout(inputs, word, name)
            else:
                trial = {each: to_canonical_layout(array, word) for each, array in inputs.items()}
                trial = in_model_layout(trial, self.axis_orders[name], name)
            if _reads(remote, trial):
                return f'{told}: --layout {of}={word}, or input = "{word}" under [models.{of}] of the map'
        return ""

    @property
    def reference(self) -> str:
        """The first model."""
        return next(iter(self.factories))

    def match(self, mapped: bool) -> tuple[dict[str, list[Pair]], list[str]]:
        """Pair the parameters of each model with the reference's.

        Args:
            mapped: whether to use the entries of a map that the user gave.

        Returns:
            the pairs of each model except the reference, and one line for each parameter that could not
            be matched.

        Raises:
            RequestError: the map is wrong, or the models have no parameters.
        """
        reference, *models = self.models.values()
        pairs: dict[str, list[Pair]] = {}
        undecided: list[str] = []
        if self.recording is not None:
            own = reference.remote.parameters.values()
            return {model.name: [Pair(x, x, "itself") for x in own] for model in models}, []
        for model in models:
            model_map = self.weight_map.models.get(model.name, ModelMap())
            pair_names = (reference.name, model.name)
            if mapped and model_map.weights is not None:
                left, right = reference.remote.parameters, model.remote.parameters
                pairs[model.name] = mapped_pairs(
                    model_map, left, right, reference.leave, pair_names
                )
                continue
            for side in (reference, model):
                unknown = [name for name in side.leave if name not in side.remote.parameters]
                if unknown:
                    raise RequestError(
                        f"the map leaves '{unknown[0]}', which is no parameter of {side.name}"
                    )
            added = _added_biases(reference, model), _added_biases(model, reference)
            for side, biases in zip((reference, model), added):
                side.leave = (*side.leave, *biases)
            proposal = _propose(reference, model)
            pairs[model.name] = [*proposal.pairs, *self._chosen(model, proposal)]
            undecided += proposal.undecided
            for side, states in zip((reference, model), proposal.left):
                side.leave = tuple(dict.fromkeys((*side.leave, *states)))
        if not any(pairs.values()) and not undecided:
            raise RequestError("the models have no parameters, so there is nothing to carry")
        return pairs, undecided

    def _chosen(self, model: Model, proposal: Proposal) -> list[Pair]:
        """Pairs for the choices that matching leaves, by the values of outputs at seeded weights.

        A capture has no values but those at its own weights. So the first of several is undecided.
        """
        if self.against is not None:
            proposal.undecided += [
                f"{model.name}: {pair.target.name} may lie in another way for {pair.source.name}, which "
                "a capture cannot tell"
                for choice in proposal.choices
                for pair in choice[0]
                if len(choice) > 1
            ]
            return [pair for choice in proposal.choices for pair in choice[0]]
        reference = self.models[self.reference]
        made = reference.remote.weights(), model.remote.weights()
        weights = varied(made[0], reference.remote.parameters, 0)

        @cache
        def expected() -> ForwardPass:
            reference.remote.load_weights(weights)
            return reference.forward(self.example)

        def distance(pairs: Sequence[Pair]) -> float:
            model.remote.load_weights(carry([*proposal.pairs, *pairs], weights))
            return output_figures(expected(), model.forward(self.example))[0].distance

        chosen = nearest(proposal.choices, distance)
        if any(len(choice) > 1 for choice in proposal.choices):
            reference.remote.load_weights(made[0])
            model.remote.load_weights(made[1])
        return chosen


def _fits(remote: ModelHandle, model_inputs: Inputs) -> bool:
    """Whether inputs have the shape that a model declares; true if it declares none."""
    expected = remote.input_shape
    if expected is None or len(model_inputs) != 1:
        return True
    (model_input,) = model_inputs.values()
    return len(expected) == model_input.ndim - 1 and all(
        size in (-1, actual_size) for size, actual_size in zip(expected, model_input.shape[1:])
    )


def _reads(remote: ModelHandle, model_inputs: Inputs) -> bool:
    """Whether a model can be run on inputs."""
    if not _fits(remote, model_inputs):
        return False
    try:
        remote.forward(model_inputs)
    except WorkerRaised:
        return False
    return True


def _propose(reference: Model, model: Model) -> Proposal:
    """Match two models; if that is incomplete, with the matrices of attention joined in either."""
    names = reference.name, model.name
    source, target = _matchable(reference), _matchable(model)
    plain = propose(source, target, names)
    joined = with_attention_joined(source), with_attention_joined(target)
    if not plain.undecided or joined == (None, None):
        return plain
    proposals = [
        propose(own, other, names)
        for own in filter(None, (joined[0], source))
        for other in filter(None, (joined[1], target))
    ]
    return min(plain, *proposals, key=lambda proposal: len(proposal.undecided))


def _added_biases(model: Model, other: Model) -> list[str]:
    """Biases of zeros that an exporter added to layers of a file, where the other model has none."""
    if not isinstance(model.remote, OnnxModel):
        return []
    own_layers, other_layers = _biased_layers(model), _biased_layers(other)
    if [each[0] for each in own_layers] != [each[0] for each in other_layers]:
        return []
    weights = model.remote.weights()
    return [
        bias
        for (_, bias), (_, other_bias) in zip(own_layers, other_layers)
        if bias and not other_bias and not weights[bias].any()
    ]


def _biased_layers(model: Model) -> list[tuple[Any, str]]:
    """Kind and shape of every layer with a weight, in the order of calls, and its bias; "" without one."""
    found = []
    for parameters in _matchable(model).parameters_by_unit().values():
        roles = {parameter.role: parameter for parameter in parameters}
        layer = model.remote.layers.get(parameters[0].layer)
        if layer is not None and "weight" in roles:
            bias = roles["bias"].name if "bias" in roles else ""
            found.append(((layer.kind, roles["weight"].shape), bias))
    return found


def _matchable(model: Model) -> MatchableModel:
    parameters = [
        parameter for name, parameter in model.remote.parameters.items() if name not in model.leave
    ]
    return MatchableModel(model.remote.layers, parameters, model.calls)


def _file_size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def check_user_models(adapter: Capabilities) -> None:
    """Check that an adapter can load a user model.

    Raises:
        UnsupportedError: it cannot.
    """
    if "user_models" not in adapter.features:
        raise UnsupportedError(
            "the adapter does not have the feature 'user_models': it cannot load a model that was "
            "written by hand",
            adapter=adapter.name,
        )
