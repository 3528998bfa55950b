"""Models that the adapter's author wrote in the framework, loaded by ``dlb_load_user_model``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlb.proof.checks.export import run_exported
from dlb_worker.contract import LayerCall, UserModelRequest
from dlb_worker.errors import UnsupportedError
from dlb_worker.native import UserModel

from .closeness import FLOAT64, assert_near, assert_same_bits
from .port_models import PortModel
from .subject import Adapter, Arrays

#: Steps along a direction that a slope is taken over. A ReLU or a maximum that changes sides within
#: one shows as 1e-4 of the slope, and is seldom within the shorter as well; rounding is then 1e-8.
_STEPS = (1e-6, 1e-7)
#: How far a slope may be from the gradient's, in units of the gradient's norm.
_SLOPE = 1e-6

Load = Callable[[], UserModel]


@pytest.fixture
def load(
    adapter: Adapter, port_model: PortModel | None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Load]:
    """Loads the model, made again, in float64."""
    adapter.require_feature("user_models")
    assert port_model is not None, (
        f"adapter '{adapter.name}' loads user models: write small models in its framework "
        "and give them with --port-models FILE"
    )
    # A factory runs in its folder.
    monkeypatch.chdir(Path.cwd())
    monkeypatch.syspath_prepend(str(port_model.folder))
    yield lambda: _loaded(adapter, port_model.make(), port_model.inputs())


def _loaded(
    adapter: Adapter, make: Callable[[], Any], inputs: np.ndarray, dtype: str = "float64"
) -> UserModel:
    request = UserModelRequest(make=make, inputs=inputs, dtype=dtype, device="cpu")
    found = adapter.hook.dlb_load_user_model(framework=adapter.name, request=request)
    assert isinstance(found, UserModel), f"dlb_load_user_model gave {found!r}"
    found.example = inputs
    return found


def _random_weights(model: UserModel, seed: int = 0) -> dict[str, np.ndarray]:
    """For every parameter and state; variances and scales are about 1."""
    random, found = np.random.default_rng(seed), {}
    for one in model.describe_parameters():
        inputs = max(1, int(np.prod(one.shape[1:])))
        if one.role in ("variance", "scale"):
            found[one.name] = random.uniform(0.5, 1.5, one.shape)
        else:
            found[one.name] = random.normal(size=one.shape) / np.sqrt(inputs)
    return found


def _assert_weights(found: Arrays, true: Arrays) -> None:
    assert list(found) == list(true)
    for name, array in true.items():
        assert_same_bits(found[name], array, name)


def test_every_parameter_is_told_once_with_its_shape(load: Load, port_model: PortModel) -> None:
    model = load()
    weights, parameters = model.weights(), model.describe_parameters()
    layers = [one.name for one in model.layers()]
    assert layers[0] == "" and len(set(layers)) == len(layers)
    assert [one.name for one in parameters] == list(weights)
    assert len({one.name for one in parameters}) == len(parameters)
    trained = sum(int(np.prod(one.shape)) for one in parameters if one.trained)
    assert trained == port_model.trained, "numbers that training moves"
    for one in parameters:
        assert one.layer in layers, f"{one.name} is of a layer '{one.layer}' that is not told"
        assert weights[one.name].shape == one.shape, one.name
        assert weights[one.name].dtype == np.float64 and one.dtype == "float64", one.name
        kind = next(layer.kind for layer in model.layers() if layer.name == one.layer)
        assert bool(one.role) <= bool(kind), f"{one.name} has a role, and its layer no kind"


def test_layers_of_batch_normalisation_tell_what_they_keep(load: Load) -> None:
    for layer in load().layers():
        assert all(isinstance(value, str) for value in layer.attributes.values())
        if layer.kind != "batch_norm":
            assert layer.momentum is None, layer
        elif layer.momentum is not None:
            assert 0 <= layer.momentum < 1, layer


def test_weights_make_the_round_trip_bit_for_bit(load: Load) -> None:
    model = load()
    weights = _random_weights(model)
    model.load_weights(weights)
    _assert_weights(model.weights(), weights)
    first = next(iter(weights))
    other = {**weights, first: weights[first] + 1}
    model.load_weights({first: other[first]})
    _assert_weights(model.weights(), other)


def test_the_weights_that_are_told_are_the_whole_model(load: Load, port_model: PortModel) -> None:
    """Another model of the factory computes the same, once it has them.

    What always starts the same, as a bias does at zero, would not show here, but in the count.
    """
    one, other = load(), load()
    # Values that no initialiser gives both.
    one.load_weights(_random_weights(one))
    other.load_weights(_random_weights(other, seed=1))
    other.load_weights(dict(zip(other.weights(), one.weights().values())))
    inputs = port_model.inputs()
    for training in (False, True):
        found, true = (each.forward(inputs, training=training) for each in (other, one))
        assert len(found.outputs) == len(true.outputs) > 0
        for mine, own in zip(found.outputs, true.outputs):
            assert_near(mine, own, FLOAT64, "float64", "an output")


def test_in_float32_it_computes_the_same_to_rounding(
    adapter: Adapter, load: Load, port_model: PortModel
) -> None:
    double = load()
    weights = {name: each.astype("float32") for name, each in _random_weights(double).items()}
    double.load_weights(weights)
    inputs = port_model.inputs()
    true = double.forward(inputs).outputs
    single, given = _in_float32(adapter, port_model, weights)
    _assert_weights(single.weights(), weights)
    for found, output in zip(single.forward(given).outputs, true):
        assert found.dtype == np.float32
        assert_near(found, output, 1e-3, "float32", "an output")


def test_what_is_exported_computes_the_same(
    adapter: Adapter, load: Load, port_model: PortModel, tmp_path: Path
) -> None:
    adapter.require_feature("export_user_models")
    weights = {name: each.astype("float32") for name, each in _random_weights(load()).items()}
    model, given = _in_float32(adapter, port_model, weights)
    path = tmp_path / "model.onnx"
    if not port_model.exports:
        with pytest.raises(UnsupportedError):
            adapter.hook.dlb_export_onnx(framework=adapter.name, model=model, path=path)
        return
    assert adapter.hook.dlb_export_onnx(framework=adapter.name, model=model, path=path)
    found, true = run_exported(path, given), model.forward(given).outputs
    assert len(found) == len(true)
    for mine, own in zip(found, true):
        assert_near(mine, own, 1e-4, "float32", "an output of the file")
    _assert_weights(model.weights(), weights)


def _in_float32(
    adapter: Adapter, port_model: PortModel, weights: Arrays
) -> tuple[UserModel, np.ndarray]:
    """A model with these weights, and its input."""
    inputs = port_model.inputs()
    given = inputs.astype("float32") if inputs.dtype.kind == "f" else inputs
    model = _loaded(adapter, port_model.make(), given, "float32")
    model.load_weights(weights)
    return model, given


def test_a_pass_leaves_the_model_as_it_was(load: Load, port_model: PortModel) -> None:
    model = load()
    model.load_weights(_random_weights(model))
    weights, inputs = model.weights(), port_model.inputs()
    for training in (True, False):
        before = model.forward(inputs, training=training).outputs
        _assert_weights(model.weights(), weights)
        model.vjp(inputs, [np.ones_like(each) for each in before], training=training)
        _assert_weights(model.weights(), weights)
        for found, true in zip(model.forward(inputs, training=training).outputs, before):
            assert_near(found, true, FLOAT64, "float64", "an output of the second pass")


def test_calls_are_told_in_order_with_the_values_asked_for(
    load: Load, port_model: PortModel
) -> None:
    model, inputs = load(), port_model.inputs()
    model.load_weights(_random_weights(model))
    names = [one.name for one in model.layers()]
    whole = model.forward(inputs, layers=names)
    order = [call.layer for call in whole.calls]
    owners = {one.layer for one in model.describe_parameters()}
    assert owners <= {name for name in names for called in order if called.startswith(name)}
    for call in model.forward(inputs).calls:
        assert call.inputs is None and call.output is None, call.layer
    wanted = next(call.layer for call in whole.calls if call.layer in owners)
    some = model.forward(inputs, layers=[wanted])
    assert [call.layer for call in some.calls] == order
    for one, other in zip(some.calls, whole.calls):
        if one.layer == wanted:
            assert one.output is not None and other.output is not None
            assert_same_bits(one.output, other.output, f"the value of '{wanted}'")
    for found, true in zip(some.outputs, whole.outputs):
        assert_near(found, true, FLOAT64, "float64", "an output of a pass with other values asked")


def test_dropout_that_is_reported_can_be_switched_off(load: Load, port_model: PortModel) -> None:
    """Then two passes in training mode are the same, and no call reports any."""
    model, inputs = load(), port_model.inputs()
    model.load_weights(_random_weights(model))
    before = model.forward(inputs, training=True)
    assert len(before.names) in (0, len(before.outputs))
    if not any(call.dropout for call in before.calls):
        return
    model.set_dropout(False)
    first, second = (model.forward(inputs, training=True) for _ in range(2))
    assert not any(call.dropout for call in first.calls)
    for one, other in zip(first.outputs, second.outputs):
        assert_near(one, other, FLOAT64, "float64", "an output without dropout")


def test_values_of_linear_layers_are_what_their_weights_make(
    load: Load, port_model: PortModel
) -> None:
    """So values are of the layer that is named, in order, and weights canonical."""
    model, seen = load(), 0
    model.load_weights(_random_weights(model))
    linear = {one.name for one in model.layers() if one.kind == "linear"}
    weights = {(one.layer, one.role): one.name for one in model.describe_parameters()}
    values = model.weights()
    for call in model.forward(port_model.inputs(), layers=sorted(linear)).calls:
        if call.layer in linear:
            bias = weights.get((call.layer, "bias"))
            _assert_linear(
                call, values[weights[call.layer, "weight"]], values[bias] if bias else 0.0
            )
            seen += 1
    assert seen >= len(linear), "a linear layer has no call"


def _assert_linear(call: LayerCall, weight: np.ndarray, bias: np.ndarray | float) -> None:
    assert call.inputs is not None and call.output is not None, call.layer
    given = call.inputs
    if given.shape[-1] != weight.shape[1]:  # a layer that flattens
        given = given.reshape(len(given), -1)
    assert_near(call.output, given @ weight.T + bias, FLOAT64, "float64", call.layer)


def test_batch_normalisation_is_by_the_batch_in_training_alone(
    load: Load, port_model: PortModel
) -> None:
    """In training the mean of every feature is the bias; in evaluation it is not."""
    model = load()
    model.load_weights(_random_weights(model))
    norms = {one.name for one in model.layers() if one.kind == "batch_norm"}
    biases = {one.layer: one.name for one in model.describe_parameters() if one.role == "bias"}
    inputs, values = port_model.inputs(), model.weights()
    trained, tested = (
        model.forward(inputs, training=each, layers=sorted(norms)) for each in (True, False)
    )
    for training, calls in ((True, trained.calls), (False, tested.calls)):
        for call in calls:
            if call.layer in norms:
                assert call.output is not None
                axes = tuple(axis for axis in range(call.output.ndim) if axis != 1)
                apart = np.abs(call.output.mean(axis=axes) - values[biases[call.layer]]).max()
                assert (apart < 1e-10) == training, f"{call.layer}: {apart:.2g} from its bias"
    if not norms:
        for found, true in zip(trained.outputs, tested.outputs):
            assert_near(found, true, FLOAT64, "float64", "an output in training")


@pytest.mark.parametrize("training", [False, True], ids=["evaluation", "training"])
def test_running_statistics_are_told_as_a_step_leaves_them(
    adapter: Adapter, load: Load, port_model: PortModel, training: bool
) -> None:
    """What a batch normalisation keeps of them, and the batch's for the rest: its variance over n
    values or over n - 1."""
    model, inputs = load(), port_model.inputs()
    model.load_weights(_random_weights(model))
    before, named = model.weights(), {one.name: one for one in model.describe_parameters()}
    norms = {one.name: one.momentum for one in model.layers() if one.kind == "batch_norm"}
    trace = model.forward(inputs, training=training, layers=sorted(norms))
    given = {call.layer: call.inputs for call in trace.calls if call.layer in norms}
    ones = [np.ones_like(each) for each in trace.outputs]
    moved = model.vjp(inputs, ones, training=training).states
    assert moved.keys() == {one.name for one in named.values() if not one.trained}
    for name, found in moved.items():
        kept, values = norms.get(named[name].layer), given.get(named[name].layer)
        if not training:
            assert_near(found, before[name], FLOAT64, "float64", name)
        elif kept is not None and values is not None and named[name].role in ("mean", "variance"):
            axes = tuple(axis for axis in range(values.ndim) if axis != 1)
            some = [values.mean(axis=axes)]
            if named[name].role == "variance":
                some = [values.var(axis=axes, ddof=degrees) for degrees in (0, 1)]
            old: Any = before[name]
            steps = [kept * old + (1 - kept) * each for each in some]
            nearest = min(steps, key=lambda step: float(np.linalg.norm(step - found)))
            assert_near(found, nearest, FLOAT64, "float64", name)


@pytest.mark.parametrize("training", [False, True], ids=["evaluation", "training"])
def test_gradients_are_the_slopes_of_the_outputs(
    load: Load, port_model: PortModel, training: bool
) -> None:
    """Along a random direction of every parameter that is trained, and of the input."""
    model, inputs, random = load(), port_model.inputs(), np.random.default_rng(1)
    model.load_weights(_random_weights(model))
    weights = model.weights()
    outputs = model.forward(inputs, training=training).outputs
    cotangents: list[Any] = [random.normal(size=each.shape) for each in outputs]

    def value(given: Any) -> float:
        found = model.forward(given, training=training).outputs
        return float(sum(np.sum(each * by) for each, by in zip(found, cotangents)))

    found = model.vjp(inputs, cotangents, training=training)
    assert float(found.loss) == pytest.approx(value(inputs), rel=1e-12, abs=1e-12)
    trained = {one.name: one.shape for one in model.describe_parameters() if one.trained}
    assert found.parameters.keys() == trained.keys()
    assert (found.inputs is None) == bool(port_model.tokens)
    every = dict(found.parameters)
    if found.inputs is not None:
        assert found.inputs.shape == inputs.shape
        every["the input"] = found.inputs
    total = np.sqrt(sum(float(np.sum(each**2)) for each in every.values()))
    for name, gradient in every.items():
        assert gradient.dtype == np.float64, f"gradient of {name} is {gradient.dtype}"
        direction: Any = random.normal(size=gradient.shape)

        def at(step: float, name: str = name, direction: Any = direction) -> float:
            if name not in trained:
                return value(inputs + step * direction)
            model.load_weights({name: weights[name] + step * direction})
            there = value(inputs)
            model.load_weights({name: weights[name]})
            return there

        slopes = [(at(step) - at(-step)) / (2 * step) for step in _STEPS]
        own = float(np.sum(gradient * direction))
        apart = min(abs(own - slope) for slope in slopes)
        # Next to nothing: that of a bias before a batch normalisation.
        allowed = _SLOPE * max(float(np.linalg.norm(gradient)), total / 100)
        assert apart <= allowed, f"gradient of {name}: {own!r} along a direction, not {slopes}"


def test_what_is_no_model_is_refused(adapter: Adapter, load: Load, port_model: PortModel) -> None:
    with pytest.raises(UnsupportedError, match="str"):
        _loaded(adapter, lambda: "a model", port_model.inputs())


def test_models_of_other_adapters_are_left_alone(adapter: Adapter, load: Load) -> None:
    def make() -> Any:
        raise AssertionError("the factory was called for another adapter")

    request = UserModelRequest(make=make, inputs=None, dtype="float64", device="cpu")
    assert adapter.hook.dlb_load_user_model(framework="another", request=request) is None
