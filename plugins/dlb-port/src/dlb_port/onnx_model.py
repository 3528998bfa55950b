"""An ONNX file as a model of a port: NumPy computes its graph, in this process, in evaluation mode."""

from __future__ import annotations

import copy
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto

from dlb.errors import DlbError, UnsupportedError, WorkerRaised
from dlb_graph.layers.decimals import decimal
from dlb_graph.rewriting.nominal import fix_input_shapes, nominal_array, restore_nominal_values
from dlb_graph.truth.evaluate import Evaluator, names_read
from dlb_graph.truth.liveness import live_names
from dlb_graph.truth.precision import in_precision, set_nominal_values
from dlb_graph.truth.recognised import Recognised
from dlb_graph.truth.runtime import run_in_parts
from dlb_graph.truth.trace import attributes_of, node_name
from dlb_graph.truth.weights import WeightPlace
from dlb_port.file_layers import FileLayer, layers_of
from dlb_port.folding import fold_constants
from dlb_worker.contract import ForwardPass, Gradients, LayerCall, ParameterDescription, UserLayer
from dlb_worker.native import text_attributes

__all__ = ["OnnxModel", "is_file"]

Array = npt.NDArray[Any]
#: A parameter's name as frameworks and exporters write it, with the layer before the last dot.
_PATH = re.compile(r"\w+(\.\w+)+")
#: The end of a parameter's name that is no part of its layer's, such as in ``attn.in_proj_weight``.
_ROLE = re.compile(r"[._](weight|bias)\Z")
#: States, which no gradient moves.
_STATES = ("mean", "variance")


def is_file(factory: str) -> bool:
    """Whether a model of a port is a file, not a factory."""
    return factory.lower().endswith(".onnx")


@dataclass(frozen=True)
class _Parameter:
    """A parameter with the places that hold it; the first is read, and all are written."""

    description: ParameterDescription
    places: tuple[WeightPlace, ...]


class OnnxModel:
    """A model of a port with the interface of :class:`~dlb_port.remote_model.RemoteUserModel`.

    Attributes:
        name: what messages call the model.
        dtype: dtype of parameters and computation.
        layers: the layers by name: nodes, or several that are one layer.
        parameters: the parameters by name, in the order of the nodes.
        input_shape: the shape of one sample, -1 for open sizes; None if there are several inputs.
    """

    #: A file holds no training.
    evaluation_only = True

    def __init__(
        self, name: str, model: onnx.ModelProto, inputs: Mapping[str, Array] | None
    ) -> None:
        """Read the layers of a model.

        Args:
            model: in float64; it is not changed.
            inputs: every input [batch, ...] by name, as the model reads it. Without any, only
                ``input_shape`` is known.

        Raises:
            UnsupportedError: a constant of the model cannot be computed, or its layers cannot be read.
            WorkerRaised: the file reads another number of inputs.
        """
        self.name, self.dtype = name, "float64"
        own = {tensor.name for tensor in model.graph.initializer}
        self._inputs = [value for value in model.graph.input if value.name not in own]
        self.layers: dict[str, UserLayer] = {}
        self.parameters: dict[str, ParameterDescription] = {}
        self.input_shape = self._sample_shape()
        self._parameters: dict[str, _Parameter] = {}
        self._candidates: dict[str, _Parameter] = {}
        self._layers: dict[str, FileLayer] = {}
        self._values: dict[str, Array] = {}
        if inputs is None:
            return
        try:
            self._read(model, inputs)
        except (IndexError, KeyError, TypeError, ValueError) as error:
            # A file of unknown origin may have weights of any shape.
            reason = " ".join(str(error).split())[:200]
            raise UnsupportedError(
                f"{name}: the layers of its graph cannot be read: {reason}"
            ) from error

    def _sample_shape(self) -> tuple[int, ...] | None:
        if len(self._inputs) != 1 or not self._inputs[0].type.tensor_type.HasField("shape"):
            return None
        sizes = self._inputs[0].type.tensor_type.shape.dim
        return tuple(size.dim_value or -1 for size in sizes[1:])

    def _batches(self) -> list[int | None]:
        """For each input the number of samples that the file fixes; None if it is free."""
        shapes = [value.type.tensor_type.shape.dim for value in self._inputs]
        return [(shape[0].dim_value or None) if shape else None for shape in shapes]

    def _read(self, model: onnx.ModelProto, inputs: Mapping[str, Array]) -> None:
        copied = onnx.ModelProto()
        copied.CopyFrom(model)
        fixed = self._batches()
        samples = fixed[0] if fixed and fixed[0] else 2
        own = self._own_inputs(inputs).items()
        batch = {name: array[:samples] if array.ndim else array for name, array in own}
        known = restore_nominal_values(copied, batch)
        if known is not None:
            _fix_shaped_weights(copied, known, batch if any(fixed) else self._own_inputs(inputs))
        folded = fold_constants(copied)
        self._model, self._sources = folded.model, folded.sources
        self._values = dict(folded.constants)
        self._live = live_names(folded.model.graph.node, [value.name for value in self._inputs])
        self._layers = self._named(layers_of(folded.model, folded.constants, known, self._live))
        self.layers = {"": UserLayer("", "graph", {})}
        for name, layer in self._layers.items():
            shown = {
                key: decimal(value) if isinstance(value, float) else value
                for key, value in attributes_of(layer.nodes[0]).items()
            }
            attributes = text_attributes(shown)
            self.layers[name] = UserLayer(name, layer.nodes[0].op_type, attributes, layer.kind)
        self._find_parameters()
        for parameter in self._candidates.values():
            for place in parameter.places:
                self._values[place.constant] = nominal_array(self._values[place.constant])
        self._settle()

    def _settle(self) -> None:
        self.parameters = {name: each.description for name, each in self._parameters.items()}
        self._evaluator = Evaluator(self._model)

    # --- layers and parameters -------------------------------------------------------------------

    def _named(self, layers: Sequence[FileLayer]) -> dict[str, FileLayer]:
        """Layers by name: that of the framework's layer if its parameters say so, else the node's."""
        names: list[str] = []
        for layer in layers:
            name = node_name(layer.nodes[0])
            names.append(name if name not in names else layer.output)
        source = self._sources
        paths = [
            _path([source[place.constant] for place in each.roles.values()]) for each in layers
        ]
        for place, path in enumerate(paths):
            others = {*names, *paths[:place], *paths[place + 1 :]}
            if path and not any(f"{other}.".startswith(f"{path}.") for other in others):
                names[place] = path
        return dict(zip(names, layers))

    def _find_parameters(self) -> None:
        """Parameters of layers of known kinds, and the other constants, which may be some."""
        seen: dict[tuple[str, str], str] = {}
        for layer_name, layer in self._layers.items():
            for role, place in layer.roles.items():
                array = place.read(self._values[place.constant])
                known = bool(layer.kind)
                found = self._parameters if known else self._candidates
                first = seen.get((self._sources[place.constant], place.part), "")
                if self._share(first, place, array) or self._tie(layer, role, place, array):
                    continue
                name = self._parameter_name(place, {**self._parameters, **self._candidates})
                seen.setdefault((self._sources[place.constant], place.part), name)
                found[name] = _Parameter(
                    ParameterDescription(
                        name=name,
                        layer=layer_name,
                        role=role if known else "",
                        shape=array.shape,
                        native_shape=self._values[place.constant].shape,
                        dtype=self.dtype,
                        trained=known and role not in _STATES,
                    ),
                    (place,),
                )

    def _share(self, name: str, place: WeightPlace, array: Array) -> bool:
        """Let the parameter of a name hold a further place of its own numbers, if it has them."""
        holder = self._parameters if name in self._parameters else self._candidates
        if name not in holder:
            return False
        other = holder[name]
        if any(each.constant == place.constant for each in other.places):
            return True
        held = other.places[0].read(self._values[other.places[0].constant])
        turned = array.ndim == 2 and np.array_equal(held, array.T)
        if not turned and not np.array_equal(held, array):
            return False
        holder[name] = replace(other, places=(*other.places, _turned(place) if turned else place))
        return True

    def _tie(self, layer: FileLayer, role: str, place: WeightPlace, array: Array) -> bool:
        """Let a table and a matrix with the same numbers be one: exporters write a tied weight twice."""
        kinds = {"embedding": "linear", "linear": "embedding"}
        if role != "weight" or layer.kind not in kinds or np.unique(array).size <= 2:
            return False
        return any(
            each.description.role == "weight"
            and each.description.shape == array.shape
            and self.layers[each.description.layer].kind == kinds[layer.kind]
            and self._share(name, place, array)
            for name, each in list(self._parameters.items())
        )

    def _parameter_name(self, place: WeightPlace, taken: Collection[str]) -> str:
        directions = len(self._values[place.constant]) if place.part else 1
        end = f"[{place.part}]" if directions > 1 else ""
        names = (f"{name}{end}" for name in (self._sources[place.constant], place.constant))
        return next((name for name in names if name not in taken), f"{place.constant}{end} (2)")

    def adopt(self, others: Iterable[ParameterDescription], names: Collection[str]) -> None:
        """Count constants of unknown kind as parameters if another model has such a parameter.

        A file does not say whether a constant is a weight or a number of the code. What has no counterpart
        stays as it is, and the outputs show whether it is right.

        Args:
            others: parameters of the other models.
            names: further constants that are parameters: those that the map names.
        """
        by_name = {each.name: each for each in others}
        for name, parameter in list(self._parameters.items()):
            other = by_name.get(name)
            # It belongs to the code of the other model, so it crosses as it is.
            if other is not None and not other.role and parameter.description.role:
                self._parameters[name] = self._as_written(parameter)
        constants = {*self._parameters, *self._candidates}
        own = (each for each in by_name.values() if not each.role and each.name not in constants)
        sizes = {_sizes(each.shape) for each in own} - {()}
        for name, candidate in list(self._candidates.items()):
            if name in {*by_name, *names} or _sizes(candidate.description.shape) in sizes:
                self._parameters[name] = self._candidates.pop(name)
        order = {name: place for place, name in enumerate(self._layers)}
        self._parameters = dict(
            sorted(self._parameters.items(), key=lambda item: order[item[1].description.layer])
        )
        self._settle()

    def _as_written(self, parameter: _Parameter) -> _Parameter:
        """A parameter without a role, in the layout of its constant; unchanged if it is a part of one."""
        (first, *others), described = parameter.places, parameter.description
        if first.part or others:
            return parameter
        shape = self._values[first.constant].shape
        return _Parameter(replace(described, role="", shape=shape), (WeightPlace(first.constant),))

    # --- the interface of a model ----------------------------------------------------------------

    def drop(self) -> None:
        """Free the memory of the model."""
        self._values = {}

    def in_float32(self) -> OnnxModel:
        """The same model in float32, with its weights."""
        again = copy.copy(self)
        again.dtype = "float32"
        again._model = in_precision(self._model, TensorProto.FLOAT)
        again._values = {
            name: array.astype(np.float32) if array.dtype.kind == "f" else array
            for name, array in self._values.items()
        }
        again._parameters = {
            name: replace(each, description=replace(each.description, dtype="float32"))
            for name, each in self._parameters.items()
        }
        again._settle()
        return again

    def weights(self) -> dict[str, Array]:
        """Every parameter and state by name."""
        return {
            name: np.array(each.places[0].read(self._values[each.places[0].constant]))
            for name, each in self._parameters.items()
        }

    def load_weights(self, weights: Mapping[str, Array]) -> None:
        """Set parameters and states by name."""
        for name, parameter in self._parameters.items():
            if name not in weights:
                continue
            array = np.asarray(weights[name], self.dtype)
            for place in parameter.places:
                self._values[place.constant] = place.write(self._values[place.constant], array)

    def set_dropout(self, active: bool) -> None:
        """Nothing drops in evaluation mode."""

    def bypass(self, layers: Sequence[str]) -> None:
        """Nothing draws in evaluation mode."""

    def forward(
        self, inputs: Mapping[str, Array], *, training: bool = False, layers: Sequence[str] = ()
    ) -> ForwardPass:
        """One forward pass in evaluation mode, in parts if the file fixes a smaller batch.

        Args:
            inputs: every input [batch, ...], by the file's names or in its order.
            training: has no effect.
            layers: layers whose values are returned too.

        Raises:
            WorkerRaised: the graph cannot be computed on these inputs.
        """
        requested = set(layers)
        outputs = [value.name for value in self._model.graph.output]
        names = list(outputs)
        for name, layer in self._layers.items():
            if name in requested:
                names += [layer.output, *self._read_by(layer)]
        names = list(dict.fromkeys(filter(None, names)))
        own = self._own_inputs(inputs)
        self._check(own)
        try:
            values = self._run(own, names)
        except DlbError as error:
            raise WorkerRaised(error.message, adapter=self.name) from None
        calls = [
            self._call(*named, values if named[0] in requested else {})
            for named in self._layers.items()
        ]
        return ForwardPass(tuple(values[name] for name in outputs), tuple(calls), tuple(outputs))

    def vjp(
        self, inputs: Mapping[str, Array], cotangents: Sequence[Array], *, training: bool
    ) -> Gradients:
        """A file has no gradients.

        Raises:
            UnsupportedError: always.
        """
        raise UnsupportedError(f"{self.name}: a file has no gradients")

    def own_steps(self, *arguments: Any) -> Any:
        """A file has no training program.

        Raises:
            UnsupportedError: always.
        """
        raise UnsupportedError(f"{self.name}: a file has no training program")

    def export(self, to: Any) -> None:
        """A file is exported already.

        Raises:
            UnsupportedError: always.
        """
        raise UnsupportedError(f"{self.name}: a file is exported already")

    # --- computation -----------------------------------------------------------------------------

    def _own_inputs(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Inputs by the file's names.

        Raises:
            WorkerRaised: the file reads another number of inputs.
        """
        names = [value.name for value in self._inputs]
        if set(names) == set(inputs):
            return dict(inputs)
        if len(names) != len(inputs):
            raise WorkerRaised(
                f"the file reads {len(names)} inputs ({', '.join(names) or 'none'}), and {len(inputs)} are "
                "given; give each with --input-shape NAME=SHAPE, or an array for each with --input",
                adapter=self.name,
            )
        return dict(zip(names, inputs.values()))

    def _check(self, inputs: Mapping[str, Array]) -> None:
        for value, fixed in zip(self._inputs, self._batches()):
            array = inputs[value.name]
            if fixed and array.ndim and len(array) % fixed:
                raise WorkerRaised(
                    f"the file fixes its batch at {fixed} samples, and {len(array)} are given; give a "
                    f"multiple, such as --batch-size {fixed}, or export it with an open batch",
                    adapter=self.name,
                )
            real = value.type.tensor_type.elem_type == TensorProto.DOUBLE
            if not real and array.dtype.kind == "f":
                raise WorkerRaised(
                    f"'{value.name}' reads integers, and reals are given; give --tokens N for integers "
                    "below N, or an array with --input",
                    adapter=self.name,
                )

    def _run(self, inputs: Mapping[str, Array], names: Sequence[str]) -> dict[str, Array]:
        """Values by name. A batch larger than the file's own is computed in parts."""
        constants = {name: self._values[name] for name in self._values}

        def run(batch: Mapping[str, Array]) -> list[Array]:
            values = self._evaluator.run({**constants, **batch}, names)
            return [np.atleast_1d(values[name]) if parted else values[name] for name in names]

        batches = self._batches()
        parted = any(
            fixed and len(inputs[v.name]) > fixed for v, fixed in zip(self._inputs, batches)
        )
        return dict(zip(names, run_in_parts(run, inputs, batches)))

    def _read_by(self, layer: FileLayer) -> list[str]:
        """Values that a layer reads and that depend on the inputs, the first of the first node first."""
        inner = {name for node in layer.nodes for name in node.output}
        read = [name for node in layer.nodes for name in (*node.input, *sorted(names_read(node)))]
        return [name for name in dict.fromkeys(read) if name in self._live and name not in inner]

    def _call(self, name: str, layer: FileLayer, values: Mapping[str, Array]) -> LayerCall:
        first, *others = [*map(values.get, self._read_by(layer)), None]
        output = values.get(layer.output)
        inputs, output, *rest = (
            None if array is None else layer.canonical(_real(array))
            for array in (first, output, *others[:-1])
        )
        if layer.kind == "linear" and inputs is not None and output is not None:
            # A bias may be added in another shape than that of the product.
            shape = (*output.shape[:-1], inputs.shape[-1])
            inputs = inputs.reshape(shape) if inputs.size == np.prod(shape, dtype=int) else inputs
        return LayerCall(name, inputs, output, tuple(rest))


def _fix_shaped_weights(
    model: onnx.ModelProto, known: Recognised, inputs: Mapping[str, Array]
) -> None:
    """Make constants of weights that are computed from the shapes of inputs, but are the same for any batch.

    MXNet's exporter cuts the weights of an LSTM out of one array, at sizes that it reads from the input.
    """
    traced = known.trace
    computed = {node.output[0] for node in model.graph.node if len(node.output) == 1}
    names = {
        name
        for node in model.graph.node
        if node.op_type in ("GRU", "LSTM", "RNN")
        for name in node.input[1:4]
        if name in computed - traced.live
    }
    static = {"", *(tensor.name for tensor in model.graph.initializer)}
    for node in model.graph.node:
        if names_read(node) <= static:
            static.update(node.output)
    names -= static
    if not names:
        return
    values = Evaluator(fix_input_shapes(model, inputs)).run(inputs, names)
    same = {x: value for x, value in values.items() if np.array_equal(value, traced.values[x])}
    set_nominal_values(model, values, same)


def _turned(place: WeightPlace) -> WeightPlace:
    """A place that holds the transpose of a parameter."""
    return replace(place, view=lambda constant: place.view(constant).T)


def _real(array: Array) -> Array:
    return array.astype(np.float64) if array.dtype.kind == "b" else array


def _sizes(shape: Sequence[int]) -> tuple[int, ...]:
    """Sizes of axes in any order, without those of size 1."""
    return tuple(sorted(size for size in shape if size > 1))


def _path(sources: Sequence[str]) -> str:
    """The layer that all sources of a layer's parameters name before their last dot; "" if none does."""
    found = {
        _ROLE.sub("", source) if _ROLE.search(source) else source.rpartition(".")[0]
        for source in sources
        if _PATH.fullmatch(source)
    }
    return found.pop() if len(found) == 1 else ""
