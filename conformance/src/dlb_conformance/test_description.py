"""The description tells what is so, and telling it costs no import of the framework."""

from __future__ import annotations

import pytest

from dlb_graph import workload as W
from dlb_worker import Adapter as AdapterBase
from dlb_worker.contract import ADDED, LOSSES, DataRequest, LaunchPlan, PlanRequest, StartRequest
from dlb_worker.errors import UnsupportedError
from dlb_worker.native import BuiltModel
from dlb_worker.plugins import check_description

from .closeness import VALUES, assert_near
from .layer_cases import BY_LAYER
from .models import CLASSES, chain, classifier, random_batch, random_weights
from .processes import run_python
from .subject import Adapter, workload

_IMPORTED = """
import contextlib, json, sys
import importlib_metadata as metadata
from dlb_worker.contract import PlanRequest
from dlb_worker.plugins import load_plugin, load_plugins
plugins = load_plugin({module!r}) if {module!r} else load_plugins()
described = plugins.adapter({name!r})
for strategy in plugins.strategies():
    if {name!r} in strategy.frameworks:
        plugins.hook.dlb_plan(framework={name!r}, request=PlanRequest(
            strategy=strategy.name, workers=2, host="127.0.0.1", ports=tuple(range(40000, 40008))))
owned = []
for name in described.framework:
    with contextlib.suppress(metadata.PackageNotFoundError):
        found = metadata.distribution(name)
        owned += (found.read_text("top_level.txt") or "").split()
        tops = {{path.parts[0].removesuffix(".py") for path in found.files or () if path.suffix == ".py"}}
        owned += filter(str.isidentifier, tops)
named = ["torch", "tensorflow", "keras", "mxnet", "chainer", "jax", "onnx", "onnxruntime"]
print(json.dumps([sorted(set(owned)), sorted(set(owned + named) & set(sys.modules))]))
"""


def test_it_is_of_this_contract(adapter: Adapter) -> None:
    check_description(adapter.described)


def test_it_declares_the_contract_that_it_uses(adapter: Adapter) -> None:
    model = chain((6,), W.Linear(out_features=CLASSES))
    built = adapter.build(model, random_weights(model), adapter.described.dtypes[0])
    plugins = [hook.plugin for hook in adapter.hook.dlb_peak_work.get_hookimpls()]
    (plugin,) = [each for each in plugins if getattr(each, "name", "") == adapter.name] or [None]
    replaced = {
        "losses": adapter.described.losses != LOSSES,
        "peak_work": plugin is not None and type(plugin).peak_work is not AdapterBase.peak_work,
        "step_phases": type(built).step_phases is not BuiltModel.step_phases,
    }
    used = {*adapter.described.features, *(name for name in replaced if replaced[name])}
    for version, names in ADDED.items():
        assert adapter.described.contract >= version or not used & names, used & names


def test_names_are_those_of_the_workload(adapter: Adapter) -> None:
    described = adapter.described
    assert set(described.layers) <= set(W.LAYERS)
    assert set(described.optimizers) <= set(W.OPTIMIZERS)
    assert set(described.dtypes) <= {"float32", "float64"}
    assert "cpu" in described.devices
    assert set(described.devices) <= {"cpu", "cuda"}
    assert described.exporter
    assert set(described.losses) <= set(W.LOSSES)
    sentences = (described.layers, described.optimizers, described.losses)
    for entry in (entry for each in sentences for entry in each.values()):
        assert entry.startswith(("native", "composed")), entry


def test_loading_describing_and_planning_import_no_framework(
    adapter: Adapter, adapter_names: tuple[str, str]
) -> None:
    name, module = adapter_names
    script = _IMPORTED.format(module=module, name=name)
    owned, imported = run_python(["-c", script])
    assert owned, f"none of {adapter.described.framework} is installed here"
    assert imported == []


@pytest.mark.parametrize("kind", BY_LAYER)
def test_layers_are_built_if_and_only_if_described(adapter: Adapter, kind: str) -> None:
    model = next(iter(BY_LAYER[kind].values()))
    others = {W.type_name(node.layer) for node in model.nodes} - {kind}
    if others - set(adapter.described.layers):
        pytest.skip(f"adapter '{adapter.name}' does not describe {sorted(others)}")
    if kind not in adapter.described.layers:
        with pytest.raises(UnsupportedError, match=kind):
            adapter.build(model, random_weights(model), adapter.described.dtypes[0])
        return
    built = adapter.build(model, random_weights(model), adapter.described.dtypes[0])
    assert built.weights().keys() == random_weights(model).keys()


@pytest.mark.parametrize(
    "optimizer",
    [kind(learning_rate=0.1) for kind in W.OPTIMIZERS.values()],
    ids=W.type_name,
)
def test_optimizers_are_built_if_and_only_if_described(
    adapter: Adapter, optimizer: W.Optimizer
) -> None:
    model = chain((6,), W.Linear(out_features=CLASSES))
    kind = W.type_name(optimizer)
    dtype = adapter.described.dtypes[0]
    if kind not in adapter.described.optimizers:
        with pytest.raises(UnsupportedError, match=kind):
            adapter.build(model, random_weights(model), dtype, optimizer=optimizer)
        return
    adapter.build(model, random_weights(model), dtype, optimizer=optimizer)


#: One of each type.
LOSSES_OF_KINDS: list[W.Loss] = [
    kind(most_labels=2) if kind is W.CTC else kind() for kind in W.LOSSES.values()
]


@pytest.mark.parametrize("loss", LOSSES_OF_KINDS, ids=W.type_name)
def test_losses_are_built_if_and_only_if_described(adapter: Adapter, loss: W.Loss) -> None:
    shape = (3, 6) if isinstance(loss, W.CTC) else (6,)
    model = chain(shape, W.Linear(out_features=CLASSES))
    kind, dtype = W.type_name(loss), adapter.described.dtypes[0]
    if kind not in adapter.described.losses:
        with pytest.raises(UnsupportedError, match=kind):
            adapter.build(model, random_weights(model), dtype, loss=loss)
        return
    adapter.build(model, random_weights(model), dtype, loss=loss)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_dtypes_are_built_if_and_only_if_described(adapter: Adapter, dtype: str) -> None:
    model = chain((6,), W.Linear(out_features=CLASSES))
    weights = random_weights(model)
    if dtype not in adapter.described.dtypes:
        with pytest.raises(UnsupportedError, match=dtype):
            adapter.build(model, weights, dtype)
        return
    built = adapter.build(model, weights, dtype)
    inputs, _ = random_batch(model, dtype)
    name = model.nodes[-1].name
    true = inputs.astype("float64") @ weights[f"{name}.weight"].T.astype("float64")
    found = built.forward(inputs)[name]
    assert_near(found, true + weights[f"{name}.bias"], VALUES[dtype], dtype, name)


def test_hooks_answer_for_no_other_framework(adapter: Adapter) -> None:
    model = chain((6,), W.Linear(out_features=CLASSES))
    inputs, labels = random_batch(model)
    load = DataRequest(inputs, labels, labels[None], "memory", "cpu", "float64")
    plan = PlanRequest("any", 2, "127.0.0.1", tuple(range(40000, 40008)))
    another, hook = "no-such-framework", adapter.hook
    assert workload(model)
    assert hook.dlb_start(framework=another, request=StartRequest(1)) is None
    assert hook.dlb_load_data(framework=another, request=load) is None
    assert hook.dlb_clock(framework=another, device="cpu") is None
    assert hook.dlb_plan(framework=another, request=plan) is None
    assert hook.dlb_join(framework=another, strategy="any", rank=0, workers=2) is None


def test_an_unknown_strategy_is_left_to_others(adapter: Adapter) -> None:
    plan = PlanRequest("no-such-strategy", 2, "127.0.0.1", tuple(range(40000, 40008)))
    assert adapter.hook.dlb_plan(framework=adapter.name, request=plan) is None


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_each_strategy_lays_out_its_workers(adapter: Adapter, workers: int) -> None:
    described = [one for some in adapter.hook.dlb_strategies() for one in some]
    ports = tuple(range(40000, 40000 + 4 + 2 * workers))
    for strategy in described:
        if adapter.name not in strategy.frameworks:
            continue
        request = PlanRequest(strategy.name, workers, "127.0.0.1", ports)
        plan = adapter.hook.dlb_plan(framework=adapter.name, request=request)
        assert isinstance(plan, LaunchPlan), strategy.name
        ranks = [process.rank for process in plan.processes if process.role == "worker"]
        # A process for each worker, or one that holds them all.
        assert ranks in (list(range(workers)), [0]), strategy.name
        for process in plan.processes:
            for key, value in process.environment.items():
                assert isinstance(key, str) and isinstance(value, str), strategy.name


#: Two layers of a type that differ in one attribute.
APART: dict[str, tuple[W.Layer, ...]] = {
    "conv": (
        W.Conv(out_channels=2, kernel=(3, 3)),
        W.Conv(out_channels=2, kernel=(3, 3), groups=2),
    ),
    "batch_norm": (W.BatchNorm(epsilon=0.03), W.BatchNorm(epsilon=0.2)),
    "gelu": (W.GELU(), W.GELU(approximate="tanh")),
    "lrn": (W.LRN(size=3, alpha=0.4), W.LRN(size=3, alpha=0.2)),
    "max_pool": tuple(W.MaxPool(kernel=(2, 2), stride=stride) for stride in ((1, 1), (2, 2))),
    "average_pool": tuple(
        W.AveragePool(kernel=(2, 2), stride=stride) for stride in ((1, 1), (2, 2))
    ),
    "attention": (
        W.Attention(heads=5),
        W.Attention(heads=5, causal=True),
    ),
    "reshape": (W.Reshape(shape=(4, 3, 5)), W.Reshape(shape=(2, 5, 6))),
    "pad": (W.Pad(pads=(0, 1, 0, 0, 0, 1)), W.Pad(pads=(0, 1, 0, 0, 1, 0))),
    "slice": (
        W.Slice(starts=(0, 0, 0), ends=(2, 4, 5)),
        W.Slice(starts=(0, 1, 0), ends=(2, 5, 5)),
    ),
    "gather": (W.Gather(indices=(1, 0)), W.Gather(indices=(1, 1))),
    "mask": tuple(W.Mask(sizes=(1, 1, 5), kept="b8", value=value) for value in (0.5, -1e4)),
    "resize": (W.Resize(sizes=(2, 6, 9)), W.Resize(sizes=(2, 6, 9), mode="cubic")),
    "transpose": (W.Transpose(axes=(1, 3, 2)), W.Transpose(axes=(2, 1, 3))),
    "dropout": (W.Dropout(rate=0.2), W.Dropout(rate=0.3)),
}


@pytest.mark.parametrize("kind", APART)
def test_what_was_built_is_told_with_its_attributes(adapter: Adapter, kind: str) -> None:
    told = []
    for layer in APART[kind]:
        model = classifier((6, 5) if kind == "attention" else (2, 6, 5), layer, W.ReLU())
        adapter.require(model)
        dtype = adapter.described.dtypes[0]
        said = adapter.build(model, random_weights(model), dtype).describe_layers()
        if not said:
            pytest.skip(f"adapter '{adapter.name}' tells nothing of its layers")
        assert set(said) == {node.name for node in model.nodes}
        assert all(isinstance(text, str) and text for text in said.values())
        told.append(said)
    first, second = told
    assert first[model.nodes[0].name] != second[model.nodes[0].name]
