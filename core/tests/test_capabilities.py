"""What an adapter describes is compared with what is asked, before anything is built."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dlb.capabilities import (
    capabilities_of,
    check_capabilities,
    check_export,
)
from dlb.errors import UnsupportedError, WorkerError
from dlb_graph.workload import (
    SGD,
    Adam,
    BatchNorm,
    Embedding,
    Flatten,
    Input,
    Layer,
    Linear,
    MaxPool,
    Model,
    Node,
    ReLU,
    SoftmaxCrossEntropy,
    SquaredError,
    Workload,
)
from dlb_graph.workload.files import load
from dlb_port.session import check_user_models
from dlb_worker.contract import FEATURES

MLP = load("lenet5")
WHOLE: dict[str, Any] = {
    "name": "example",
    "title": "NumPy",
    "layers": {"conv": "native", "linear": "native", "relu": "native", "tanh": "native",
               "max_pool": "native", "average_pool": "native", "flatten": "native",
               "embedding": "native", "batch_norm": "native"},
    "optimizers": {"sgd": "native"},
    "dtypes": ["float32", "float64"],
    "devices": ["cpu"],
    "variants": {"layout": ["rows", "columns"]},
    "features": list(FEATURES),
    "deviations": ["rounds up"],
}  # fmt: skip
TIED = Model(
    input=Input(shape=(3,), kind="index"),
    nodes=(
        Node(name="table", layer=Embedding(entries=9, features=4)),
        Node(name="logits", layer=Linear(out_features=9, tied_to="table")),
    ),
)

SHARED = Model(
    input=Input(shape=(4,)),
    nodes=(
        Node(name="first", layer=Linear(out_features=4)),
        Node(name="logits", layer=Linear(out_features=4), weights_of="first"),
    ),
)


def check(workload: Workload = MLP, described: dict[str, Any] | None = None, **asked: Any) -> None:
    entry = WHOLE if described is None else described
    adapter = capabilities_of({"adapters": [entry]}, "example")
    check_capabilities(adapter, workload, **{"dtype": "float32", "device": "cpu", **asked})


def without(*features: str) -> dict[str, Any]:
    return {**WHOLE, "features": [name for name in FEATURES if name not in features]}


def changed(**fields: Any) -> Workload:
    return msgspec.structs.replace(MLP, **fields)


def layers_of(shape: tuple[int, ...], layer: Layer) -> Model:
    nodes = (Node(name="one", layer=layer), Node(name="flat", layer=Flatten()))
    return Model(
        input=Input(shape=shape), nodes=(*nodes, Node(name="fc", layer=Linear(out_features=2)))
    )


DILATED = MaxPool(kernel=(2, 2), stride=(1, 1), dilation=(2, 2))


def test_what_is_described_is_read() -> None:
    adapter = capabilities_of({"adapters": [{"name": "other"}, WHOLE]}, "example")
    assert adapter.features == frozenset(FEATURES) and adapter.deviations == ("rounds up",)
    assert adapter.variants == {"layout": ("rows", "columns")}


def test_an_environment_without_the_adapter_is_an_error_of_it() -> None:
    with pytest.raises(WorkerError, match="only other") as raised:
        capabilities_of({"adapters": [{"name": "other"}]}, "example")
    assert raised.value.adapter == "example"


def test_what_is_asked_and_there_passes() -> None:
    check(changed(optimizer=SGD(learning_rate=0.1, clip_norm=1.0)), crops=True)
    check(changed(model=TIED), variant={"layout": "columns"}, dtype="float64")
    check(changed(model=layers_of((2, 4, 4), DILATED)))
    check(changed(model=layers_of((2, 4, 4, 4), BatchNorm())))


#: What is described, what is asked, and what the error says: its message, and its layer.
REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str, str]] = {
    "a layer": (
        {**WHOLE, "layers": {"linear": "native"}},
        {"workload": changed(model=Model(input=Input(shape=(3,)), nodes=(
            Node(name="fc", layer=Linear(out_features=2)), Node(name="act", layer=ReLU())))) },
        "NumPy cannot build layer 'act': no relu",
        "act",
    ),
    "an optimizer": (WHOLE, {"workload": changed(optimizer=Adam(learning_rate=0.1))}, "adam", ""),
    "a loss": (
        {**WHOLE, "losses": {"squared_error": "native", "huber": "native"}},
        {"workload": changed(loss=SoftmaxCrossEntropy())},
        "it has no loss softmax_cross_entropy; it has huber, squared_error",
        "",
    ),
    "a loss, of an adapter that tells of none": (
        WHOLE,
        {"workload": changed(loss=SquaredError())},
        "it has no loss squared_error; it has softmax_cross_entropy",
        "",
    ),
    "clipping": (
        without("clip_norm"),
        {"workload": changed(optimizer=SGD(learning_rate=0.1, clip_norm=1.0))},
        "'clip_norm': optimizer.clip_norm must be 0",
        "",
    ),
    "clipping by value": (
        without("clip_value"),
        {"workload": changed(optimizer=SGD(learning_rate=0.1, clip_value=1.0))},
        "'clip_value': optimizer.clip_value must be 0",
        "",
    ),
    "a batch in parts": (
        without("accumulate"),
        {"workload": changed(optimizer=SGD(learning_rate=0.1, accumulate=2))},
        "'accumulate': optimizer.accumulate must be 1",
        "",
    ),
    "the largest moments": (
        {**without("amsgrad"), "optimizers": {"adam": "native"}},
        {"workload": changed(optimizer=Adam(amsgrad=True))},
        "'amsgrad': optimizer.amsgrad must be false",
        "",
    ),
    "clipping by variable": (
        without("clip_variable_norm"),
        {"workload": changed(optimizer=SGD(learning_rate=0.1, clip_variable_norm=1.0))},
        "'clip_variable_norm': optimizer.clip_variable_norm must be 0",
        "",
    ),
    "decay of weights alone": (
        without("weight_decay_on"),
        {"workload": changed(
            optimizer=SGD(learning_rate=0.1, weight_decay=0.1, weight_decay_on="weights"))},
        "'weight_decay_on': optimizer.weight_decay_on must be \"all\"",
        "",
    ),
    "class weights": (
        without("class_weights"),
        {"workload": changed(loss=SoftmaxCrossEntropy(class_weights=(0.5, 1.0)))},
        "'class_weights': loss.class_weights must be left out",
        "",
    ),
    "a label that is ignored": (
        without("ignore_index"),
        {"workload": changed(loss=SoftmaxCrossEntropy(ignore_index=0))},
        "'ignore_index': loss.ignore_index must be left out",
        "",
    ),
    "smoothing": (
        without("label_smoothing"),
        {"workload": changed(loss=SoftmaxCrossEntropy(label_smoothing=0.1))},
        "'label_smoothing': loss.label_smoothing must be 0",
        "",
    ),
    "tied weights": (
        without("tied_weights"),
        {"workload": changed(model=TIED)},
        "layer 'logits' is tied to 'table'",
        "logits",
    ),
    "shared layers": (
        without("shared_layers"),
        {"workload": changed(model=SHARED)},
        "layer 'logits' computes with the parameters of 'first'",
        "logits",
    ),
    "films": (
        without("three_axes"),
        {"workload": changed(model=layers_of((2, 4, 4, 4), BatchNorm()))},
        "layer 'one' (batch_norm) reads [C, D, H, W] = [2, 4, 4, 4], and the adapter does not have the "
        "feature 'three_axes'",
        "one",
    ),
    "dilated poolings": (
        without("dilated_max_pool"),
        {"workload": changed(model=layers_of((2, 4, 4), DILATED))},
        "layer 'one' has a dilation, and the adapter does not have the feature 'dilated_max_pool'",
        "one",
    ),
    "augmentation": (without("augmentation"), {"crops": True}, "'augmentation'", ""),
    "a type": ({**WHOLE, "dtypes": ["float32"]}, {"dtype": "float64"}, "no dtype float64", ""),
    "a device": (WHOLE, {"device": "cuda"}, "no device cuda; it has cpu", ""),
    "a variant": (
        WHOLE,
        {"variant": {"layout": "diagonal"}},
        "no variant layout=diagonal; it offers layout=rows|columns",
        "",
    ),
    "a choice": (WHOLE, {"variant": {"compile": "yes"}}, "no variant compile=yes", ""),
}  # fmt: skip


@pytest.mark.parametrize(("described", "asked", "says", "layer"), REFUSED.values(), ids=REFUSED)
def test_what_is_asked_and_not_there_is_refused(
    described: dict[str, Any], asked: dict[str, Any], says: str, layer: str
) -> None:
    with pytest.raises(UnsupportedError) as raised:
        check(described=described, **asked)
    error = raised.value
    assert says in error.message and (error.adapter, error.layer) == ("example", layer)
    assert str(error) == f"example: {error.message}"


def test_an_adapter_that_describes_no_features_has_none() -> None:
    described = {name: value for name, value in WHOLE.items() if name != "features"}
    assert capabilities_of({"adapters": [described]}, "example").features == frozenset()
    check(described=described)
    with pytest.raises(UnsupportedError, match="clip_norm"):
        check(changed(optimizer=SGD(learning_rate=0.1, clip_norm=1.0)), described)


def test_what_a_foreign_worker_does_not_describe_is_left_to_it() -> None:
    """It refuses by itself what it cannot build."""
    check(described={"name": "example", "title": "NumPy", "deviations": []}, device="cuda")


@pytest.mark.parametrize(
    ("ask", "feature"), [(check_user_models, "user_models"), (check_export, "export")]
)
def test_models_of_users_and_exports_take_a_feature(ask: Any, feature: str) -> None:
    ask(capabilities_of({"adapters": [WHOLE]}, "example"))
    with pytest.raises(UnsupportedError, match=f"feature '{feature}'") as raised:
        ask(capabilities_of({"adapters": [without(feature)]}, "example"))
    assert raised.value.adapter == "example"
