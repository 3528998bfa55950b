"""Structure: what four frameworks export is the canonical graph, and what differs is found."""

from __future__ import annotations

import msgspec
import numpy as np
import onnx
import pytest
from exported_models import EXPORTED_FILES, MODELS
from onnx import TensorProto, helper, numpy_helper

from dlb.errors import UnsupportedError
from dlb_graph.rewriting.control_flow import straight
from dlb_graph.structure.structure import compare_structure
from dlb_graph.truth.canonical import canonical_graph
from dlb_graph.truth.exported import check_exported, with_opset
from dlb_graph.workload import (
    LRN,
    Add,
    AveragePool,
    BatchNorm,
    Concat,
    Conv,
    Embedding,
    Flatten,
    GlobalAveragePool,
    HardSigmoid,
    Input,
    LayerNorm,
    Linear,
    MaxPool,
    Model,
    Mul,
    Node,
    ReduceMean,
    ReLU,
    ReLU6,
    Reshape,
    Slice,
    Tanh,
    parameter_shapes,
)
from dlb_graph.workload.initial import initial_weights

EXPORTED = sorted(EXPORTED_FILES.glob("*.onnx"))


def graph_of(model: Model) -> onnx.ModelProto:
    return canonical_graph(model, initial_weights(model, 0))


def changed(model: Model, layer: str, **attributes) -> Model:
    """The model with some attributes of one layer changed."""
    return msgspec.structs.replace(
        model,
        nodes=tuple(
            msgspec.structs.replace(node, layer=msgspec.structs.replace(node.layer, **attributes))
            if node.name == layer
            else node
            for node in model.wired()
        ),
    )


def without(model: Model, layer: str) -> Model:
    """The model with one layer left out, its readers reading what it read."""
    (gone,) = (node for node in model.wired() if node.name == layer)
    return msgspec.structs.replace(
        model,
        nodes=tuple(
            msgspec.structs.replace(
                node,
                inputs=tuple(gone.inputs[0] if each == layer else each for each in node.inputs),
            )
            for node in model.wired()
            if node.name != layer
        ),
    )


def swapped(model: Model, one: str, other: str) -> Model:
    """The model with the layers of two nodes exchanged."""
    layers = {node.name: node.layer for node in model.nodes}
    layers[one], layers[other] = layers[other], layers[one]
    return msgspec.structs.replace(
        model,
        nodes=tuple(
            msgspec.structs.replace(node, layer=layers[node.name]) for node in model.wired()
        ),
    )


def test_there_are_exports_of_every_framework():
    kinds = {path.stem.rsplit("-", 1)[0] for path in EXPORTED}
    assert kinds == {"torch", "torch-script", "keras", "mxnet", "chainer"}


@pytest.mark.parametrize("path", EXPORTED, ids=lambda path: path.stem)
def test_what_frameworks_export_is_the_canonical_graph(path):
    model = MODELS[path.stem.split("-")[-1]]
    found = compare_structure(graph_of(model), straight(onnx.load(str(path))))
    assert found.equal, [str(each) for each in found.differences]
    assert found.differences == ()
    assert found.canonical_parameters == found.exported_parameters
    if not found.unseen:
        total = sum(int(np.prod(shape)) for shape in parameter_shapes(model).values())
        assert found.exported_parameters == total


def test_batch_normalisation_that_an_exporter_hides_is_named():
    canonical = graph_of(MODELS["residual"])
    unseen = {
        path.stem: compare_structure(canonical, straight(onnx.load(str(path)))).unseen
        for path in EXPORTED
        if path.stem.endswith("residual")
    }
    assert unseen == {
        "chainer-residual": (),
        "mxnet-residual": (),
        "torch-residual": ("bn1", "bn2"),
        "torch-script-residual": ("bn1", "bn2"),
        "keras-residual": ("bn1", "bn2", "bn3"),
    }


#: What the other side built; the first layer that differs; what differs; expected; found.
PLANTED = {
    "stride": ("residual", lambda m: changed(m, "conv3", stride=(1, 1)), "conv3", "stride"),
    "pads": (
        "branches",
        lambda m: changed(m, "conv1", pads=(1, 1, 0, 0)),
        "conv1",
        "pads",
        "(0, 1, 1, 0)",
        "(1, 1, 0, 0)",
    ),
    "kernel": (
        "lenet",
        lambda m: changed(m, "conv1", kernel=(3, 3), pads=(1, 1, 1, 1)),
        "conv1",
        "weight",
        "(4, 1, 5, 5)",
        "(4, 1, 3, 3)",
    ),
    "dilation": (
        "lenet",
        lambda m: changed(m, "conv1", dilation=(2, 2), pads=(4, 4, 4, 4)),
        "conv1",
        "pads",
    ),
    "groups": ("residual", lambda m: changed(m, "conv2", groups=2), "conv2", "weight"),
    "channels": ("lenet", lambda m: changed(m, "conv2", out_channels=7), "conv2", "weight"),
    "features": ("lenet", lambda m: changed(m, "fc1", out_features=11), "fc1", "weight"),
    "bias": ("residual", lambda m: changed(m, "conv3", bias=False), "conv3", "bias"),
    "epsilon": (
        "residual",
        lambda m: changed(m, "bn2", epsilon=1e-5),
        "bn2",
        "epsilon",
        "0.001",
        "1e-05",
    ),
    "missing": ("lenet", lambda m: without(m, "relu1"), "relu1", "operator", "Relu", "MaxPool"),
    "missing last": ("lenet", lambda m: without(m, "relu3"), "relu3", "operator"),
    "missing norm": ("residual", lambda m: without(m, "bn3"), "bn3", "operator"),
    "activation": (
        "branches",
        lambda m: msgspec.structs.replace(
            m,
            nodes=tuple(
                msgspec.structs.replace(node, layer=ReLU())
                if isinstance(node.layer, Tanh)
                else node
                for node in m.wired()
            ),
        ),
        "tanh2",
        "operator",
        "Tanh",
        "Relu",
    ),
    "swapped": ("lenet", lambda m: swapped(m, "relu1", "pool1"), "relu1", "operator"),
    "pooling": (
        "branches",
        lambda m: swapped_pool(m),
        "pool2",
        "operator",
        "AveragePool",
        "MaxPool",
    ),
    "count_include_pad": (
        "branches",
        lambda m: changed(m, "pool1", count_include_pad=False),
        "pool1",
        "count_include_pad",
        "True",
        "False",
    ),
    "ceil_mode": ("branches", lambda m: changed(m, "pool2", ceil_mode=True), "pool2", "pads"),
    "alpha": ("branches", lambda m: changed(m, "lrn", alpha=2e-3), "lrn", "alpha", "0.01"),
    "size": ("branches", lambda m: changed(m, "lrn", size=3), "lrn", "size", "5", "3"),
    "beta": ("branches", lambda m: changed(m, "lrn", beta=0.5), "lrn", "beta"),
    "order": (
        "branches",
        lambda m: msgspec.structs.replace(
            m,
            nodes=tuple(
                msgspec.structs.replace(node, inputs=node.inputs[::-1])
                if node.name == "concat"
                else node
                for node in m.wired()
            ),
        ),
        "concat",
        "inputs",
        "pool1, tanh2",
        "tanh2, pool1",
    ),
    "skip": (
        "residual",
        lambda m: msgspec.structs.replace(
            m,
            nodes=tuple(
                msgspec.structs.replace(node, inputs=("bn2", "bn1")) if node.name == "add" else node
                for node in m.wired()
            ),
        ),
        "add",
        "inputs",
        "bn2, relu1",
        "bn2, bn1",
    ),
    "hidden": ("tokens", lambda m: changed(m, "lstm", hidden=5), "lstm", "hidden", "4", "5"),
    "entries": ("tokens", lambda m: changed(m, "embedding", entries=12), "embedding", "table"),
}


def swapped_pool(model: Model) -> Model:
    return msgspec.structs.replace(
        model,
        nodes=tuple(
            msgspec.structs.replace(node, layer=MaxPool(kernel=(3, 3), stride=(2, 2)))
            if node.name == "pool2"
            else node
            for node in model.wired()
        ),
    )


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_difference_is_found_at_its_layer(planted):
    name, change, layer, what, *values = PLANTED[planted]
    found = compare_structure(graph_of(MODELS[name]), graph_of(change(MODELS[name])), {})
    assert not found.equal
    first = found.differences[0]
    assert (first.layer, first.what) == (layer, what), [str(each) for each in found.differences]
    assert [first.expected, first.found][: len(values)] == values
    assert len(found.differences) <= 4, [str(each) for each in found.differences]


@pytest.mark.parametrize("framework", ["torch", "torch-script", "keras", "mxnet", "chainer"])
@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_difference_is_found_in_real_exports(planted, framework):
    """The export stays and the description moves, so the layer found is the one that moved."""
    name, change, layer, what, *_ = PLANTED[planted]
    path = EXPORTED_FILES / f"{framework}-{name}.onnx"
    if framework == "chainer" and name == "tokens":
        assert not path.exists(), "Chainer's exporter has no LSTM"
        return
    folds = framework in ("torch", "torch-script", "keras")
    found = compare_structure(graph_of(change(MODELS[name])), straight(onnx.load(str(path))))
    if planted == "epsilon" and folds:
        assert found.equal and "bn2" in found.unseen
        return
    assert not found.equal
    named = [each.layer for each in found.differences]
    if what == "operator" or planted == "skip":
        # The layer is not in this description, or is there under another name: it is its
        # neighbours that are named.
        assert named
    else:
        assert named[0] == layer, [str(each) for each in found.differences]


def test_equal_graphs_whatever_their_outputs_and_precision():
    for model in MODELS.values():
        weights = initial_weights(model, 0)
        other = canonical_graph(model, weights, dtype="float64", outputs="layers")
        assert compare_structure(graph_of(model), other).equal


def maps(*layers, shape=(2, 9, 9)) -> onnx.ModelProto:
    nodes = tuple(Node(name=f"layer{k}", layer=layer) for k, layer in enumerate(layers))
    return graph_of(Model(input=Input(shape=shape), nodes=nodes))


def test_ways_of_writing_the_same_pooling_are_equal():
    whole = AveragePool(kernel=(9, 9), stride=(1, 1))
    assert compare_structure(maps(GlobalAveragePool()), maps(whole)).equal
    # Rounding up is padding at the end, and where the windows fit it is nothing.
    up = maps(MaxPool(kernel=(2, 2), stride=(2, 2), ceil_mode=True))
    padded = maps(MaxPool(kernel=(2, 2), stride=(2, 2), pads=(0, 0, 1, 1)))
    assert compare_structure(up, padded).equal
    fits = MaxPool(kernel=(3, 3), stride=(2, 2))
    assert compare_structure(maps(fits), maps(msgspec.structs.replace(fits, ceil_mode=True))).equal
    # Padding that no window reads is none.
    conv = Conv(out_channels=2, kernel=(3, 3), stride=(2, 2))
    more = msgspec.structs.replace(conv, pads=(0, 0, 1, 1))
    assert compare_structure(maps(conv), maps(more)).equal


def written(nodes, *, shape=(2, 9, 9), weights=(), output=None, opset=17) -> onnx.ModelProto:
    """A model written out node by node, input x [batch, *shape] to y."""
    graph = helper.make_graph(
        nodes,
        "written",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", *shape])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, output)],
        [onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in weights],
    )
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", opset)])


W = ("w", np.ones((4, 2, 3, 3), np.float32))
B = ("b", np.zeros((4,), np.float32))


@pytest.mark.parametrize("upper", [True, False])
def test_automatic_padding_is_written_out(upper):
    pads = (0, 0, 1, 1) if upper else (1, 1, 0, 0)
    canonical = maps(Conv(out_channels=4, kernel=(3, 3), stride=(2, 2), pads=pads), shape=(2, 8, 8))
    mode = "SAME_UPPER" if upper else "SAME_LOWER"
    node = helper.make_node("Conv", ["x", "w", "b"], ["y"], auto_pad=mode, strides=[2, 2])
    assert compare_structure(canonical, written([node], weights=[W, B], shape=(2, 8, 8))).equal


def channels_last(number: float, kind: str) -> onnx.ModelProto:
    """Channels last: Pad, Transpose, then a convolution and its bias, or max-pooling."""
    pads = ("p", np.array([0, 1, 0, 0, 0, 0, 1, 0]))
    constant = ("c", np.array(number, np.float32))
    transposed = helper.make_node("Transpose", ["padded"], ["first"], perm=[0, 3, 1, 2])
    nodes = [helper.make_node("Pad", ["x", "p", "c"], ["padded"]), transposed]
    if kind == "conv":
        nodes.append(helper.make_node("Conv", ["first", "w"], ["convolved"]))
        nodes.append(helper.make_node("Transpose", ["convolved"], ["last"], perm=[0, 2, 3, 1]))
        nodes.append(helper.make_node("Add", ["b", "last"], ["y"]))
    else:
        nodes.append(helper.make_node("MaxPool", ["first"], ["y"], kernel_shape=[3, 3]))
    return written(nodes, weights=[W, B, pads, constant], shape=(9, 9, 2))


def test_padding_and_bias_are_seen_through_layouts():
    canonical = maps(Conv(out_channels=4, kernel=(3, 3), pads=(1, 0, 0, 1)))
    assert compare_structure(canonical, channels_last(0.0, "conv")).equal
    found = compare_structure(canonical, channels_last(1.0, "conv"))
    assert found.differences[0].what == "operator"


@pytest.mark.parametrize("first", [True, False], ids=["of the input", "of a layer"])
@pytest.mark.parametrize("channels", [1, 2])
def test_a_batch_normalisation_written_out_is_seen_whatever_its_channels(channels, first):
    """As TensorFlow writes it: a scale, then a shift."""
    numbers = [(name, np.full((1, channels, 1, 1), 0.5, np.float32)) for name in ("s", "b")]
    before = [] if first else [Tanh()]
    nodes = [
        *(helper.make_node("Tanh", ["x"], ["before"]) for _ in before),
        helper.make_node("Mul", ["before" if before else "x", "s"], ["scaled"]),
        helper.make_node("Add", ["scaled", "b"], ["y"]),
    ]
    exported = written(nodes, weights=numbers, shape=(channels, 9, 9))
    canonical = maps(*before, BatchNorm(), shape=(channels, 9, 9))
    assert compare_structure(canonical, exported).equal
    assert not compare_structure(maps(*before, Tanh(), shape=(channels, 9, 9)), exported).equal


@pytest.mark.parametrize("counted", [True, False])
def test_a_response_normalisation_written_out_counts_its_padding(counted):
    """As MXNet writes it: a pooling over the channels that pads by itself."""
    make = helper.make_node
    kernel = {"kernel_shape": [3, 1, 1], "pads": [1, 0, 0, 1, 0, 0]}
    nodes = [
        make("Pow", ["x", "two"], ["squares"]),
        make("Unsqueeze", ["squares", "axis"], ["channels"]),
        make("AveragePool", ["channels"], ["pooled"], count_include_pad=int(counted), **kernel),
        make("Squeeze", ["pooled", "axis"], ["mean"]),
        make("Mul", ["mean", "alpha"], ["scaled"]),
        make("Add", ["scaled", "bias"], ["moved"]),
        make("Pow", ["moved", "beta"], ["power"]),
        make("Div", ["x", "power"], ["y"]),
    ]
    numbers = {"two": 2.0, "alpha": 0.1, "bias": 2.0, "beta": 0.75}
    weights = [("axis", np.array([1]))]
    weights += [(name, np.array([number], np.float32)) for name, number in numbers.items()]
    canonical = maps(LRN(size=3, alpha=0.1, beta=0.75, bias=2.0), shape=(4, 5, 5))
    found = compare_structure(canonical, written(nodes, weights=weights, shape=(4, 5, 5)))
    assert found.equal == counted


def rescaled(size: int, kernel: int, stride: int, scale, norm=()) -> onnx.ModelProto:
    """Zeros at the end of both axes, a mean over the whole kernel, and a scale for each window.

    Args:
        norm: what multiplies each channel as well, in the same product; something is added then.
    """
    make = helper.make_node
    count = len(scale)
    more = (count - 1) * stride + kernel - size
    pool = {"kernel_shape": [kernel, kernel], "strides": [stride, stride]}
    nodes = [
        make("Pad", ["x", "pads"], ["padded"]),
        make("AveragePool", ["padded"], ["pooled"], **pool),
        make("Mul", ["pooled", "scale"], ["scaled" if norm else "y"]),
    ]
    array = np.outer(scale, scale).astype(np.float32).reshape(1, 1, count, count)
    if norm:
        nodes.append(make("Add", ["scaled", "shift"], ["y"]))
        array = array * np.array(norm, np.float32).reshape(1, 2, 1, 1)
    weights = [("pads", np.array([0, 0, 0, 0, 0, 0, more, more])), ("scale", array)]
    weights += [("shift", np.array([0.3, -2], np.float32).reshape(1, 2, 1, 1))] if norm else []
    return written(nodes, weights=weights, shape=(2, size, size))


def test_a_mean_that_is_rescaled_counts_what_its_scale_says():
    """As MXNet and Chainer write what their own pooling cannot leave out of the mean."""
    pool = AveragePool(kernel=(3, 3), stride=(2, 2), ceil_mode=True)
    canonical = maps(pool, shape=(2, 8, 8))
    assert compare_structure(canonical, rescaled(8, 3, 2, (1, 1, 1, 3 / 2))).equal
    wholly = compare_structure(canonical, rescaled(8, 3, 2, (1, 1, 1, 1)))
    assert [found.what for found in wholly.differences] == ["count_include_pad"]
    assert not compare_structure(canonical, rescaled(8, 3, 2, (1, 1, 1, 1.4))).equal
    assert not compare_structure(canonical, rescaled(8, 3, 2, (3 / 2, 1, 1, 1))).equal
    # A batch normalisation after it, whose scale the exporter took into the same product.
    both = maps(pool, BatchNorm(), shape=(2, 8, 8))
    assert compare_structure(both, rescaled(8, 3, 2, (1, 1, 1, 3 / 2), (0.7, -1.3))).equal
    assert not compare_structure(canonical, rescaled(8, 3, 2, (1, 1, 1, 3 / 2), (0.7, -1.3))).equal
    assert not compare_structure(both, rescaled(8, 3, 2, (1, 1, 1, 1.4), (0.7, -1.3))).equal
    assert not compare_structure(both, rescaled(8, 3, 2, (1, 1, 1, 1), (0.7, -1.3))).equal
    # A window that ends two past the input, of which the pads that count are one.
    partly = AveragePool(
        kernel=(4, 4), stride=(3, 3), pads=(0, 0, 1, 1), ceil_mode=True, count_include_pad=True
    )
    canonical = maps(partly, shape=(2, 8, 8))
    assert compare_structure(canonical, rescaled(8, 4, 3, (1, 1, 4 / 3))).equal
    assert not compare_structure(canonical, rescaled(8, 4, 3, (1, 1, 2))).equal
    assert not compare_structure(canonical, rescaled(8, 4, 3, (1, 1, 1))).equal


@pytest.mark.parametrize("low", [0.0, [0.0], [0.0] * 9, [0.0] * 8 + [0.1]])
def test_a_clip_is_a_relu_where_all_its_bounds_are(low):
    """ONNX has bounds be scalars; what runs files takes others too."""
    clip = helper.make_node("Clip", ["x", "low"], ["y"], name="clip")
    found = written([clip], weights=[("low", np.array(low, np.float32))])
    assert compare_structure(maps(ReLU()), found).equal == (not np.any(low))


@pytest.mark.parametrize(("high", "alike"), [([6.0], True), ([6.0] * 8 + [5.0], False)])
def test_a_clip_between_a_value_and_a_relu_counts(high, alike):
    """One bound of several numbers is not taken into the ReLU after it."""
    nodes = [
        helper.make_node("Clip", ["x", "", "high"], ["c"], name="clip"),
        helper.make_node("Relu", ["c"], ["y"], name="relu"),
    ]
    found = written(nodes, weights=[("high", np.array(high, np.float32))])
    assert not compare_structure(maps(ReLU()), found).equal
    assert compare_structure(maps(ReLU6()), found).equal == alike


@pytest.mark.parametrize("alpha", [1 / 6, 0.2])
def test_a_hard_sigmoid_has_one_slope(alpha):
    """The operator's own is 0.2."""
    node = helper.make_node("HardSigmoid", ["x"], ["y"], name="hard", alpha=alpha)
    assert compare_structure(maps(HardSigmoid()), written([node])).equal == (alpha == 1 / 6)


@pytest.mark.parametrize("high", [6.0, 5.0])
def test_a_hard_sigmoid_may_be_written_out(high):
    numbers = {"three": 3.0, "low": 0.0, "high": high, "six": 6.0}
    nodes = [
        helper.make_node("Add", ["x", "three"], ["a"], name="add"),
        helper.make_node("Clip", ["a", "low", "high"], ["c"], name="clip"),
        helper.make_node("Div", ["c", "six"], ["y"], name="div"),
    ]
    weights = [(name, np.array(number, np.float32)) for name, number in numbers.items()]
    found = written(nodes, weights=weights)
    assert compare_structure(maps(HardSigmoid()), found).equal == (high == 6.0)
    assert not compare_structure(maps(ReLU6()), found).equal


@pytest.mark.parametrize("high", [[6.0], [6.0] * 3, [6.0, 6.0, 9.0]])
def test_a_hard_sigmoid_of_few_features_has_its_bounds(high):
    """A bound that few numbers reach, of one feature or of them all."""
    for count in (1, 3):
        bound = np.array(high[-count:], np.float32)
        nodes = [
            helper.make_node("Add", ["x", "three"], ["a"], name="add"),
            helper.make_node("Relu", ["a"], ["r"], name="relu"),
            helper.make_node("Min", ["r", "high"], ["m"], name="min"),
            helper.make_node("Div", ["m", "six"], ["y"], name="div"),
        ]
        numbers = [("three", np.float32(3)), ("high", bound), ("six", np.float32(6))]
        weights = [(name, np.asarray(number)) for name, number in numbers]
        found = written(nodes, shape=(count,), weights=weights)
        canonical = maps(HardSigmoid(), shape=(count,))
        assert compare_structure(canonical, found).equal == (set(bound.tolist()) == {6.0})


def test_a_hard_swish_is_a_product():
    model = Model(
        input=Input(shape=(2, 9, 9)),
        nodes=(
            Node(name="hard", layer=HardSigmoid()),
            Node(name="swish", layer=Mul(), inputs=("hard", "input")),
        ),
    )
    found = written([helper.make_node("HardSwish", ["x"], ["y"], name="swish")])
    assert compare_structure(graph_of(model), found).equal
    assert not compare_structure(maps(HardSigmoid()), found).equal


def test_zeros_are_not_the_padding_of_max_pooling():
    canonical = maps(MaxPool(kernel=(3, 3), stride=(1, 1), pads=(1, 0, 0, 1)))
    assert compare_structure(canonical, channels_last(-np.inf, "pool")).equal
    assert not compare_structure(canonical, channels_last(0.0, "pool")).equal


def test_a_softmax_at_the_end_and_a_cast_to_half_are_differences():
    canonical = graph_of(MODELS["lenet"])
    for operator, attributes in (("Softmax", {}), ("Cast", {"to": TensorProto.FLOAT16})):
        exported = graph_of(MODELS["lenet"])
        node = helper.make_node(operator, ["fc2"], ["out"], name="extra", **attributes)
        exported.graph.node.append(node)
        exported.graph.output[0].name = "out"
        (found,) = compare_structure(canonical, exported).differences
        assert (found.layer, found.node, found.found) == ("", "extra", operator)
        assert str(found) == f"exported node 'extra': operator: expected none, found {operator}"


def test_a_size_left_open_is_refused():
    exported = graph_of(MODELS["lenet"])
    exported.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "height"
    with pytest.raises(UnsupportedError, match="every size fixed but the batch"):
        compare_structure(graph_of(MODELS["lenet"]), exported)


@pytest.mark.parametrize("path", EXPORTED, ids=lambda path: path.stem)
def test_labels_of_exports_are_checked(path):
    facts = check_exported(onnx.load(str(path)))
    # MXNet labels whatever it wrote with the newest operator set that its onnx knows.
    wrong = path.stem == "mxnet-tokens"
    assert facts.consistent is not wrong and bool(facts.checker_error) is wrong
    assert facts.newest_consistent == (17 if wrong else facts.opset)
    if wrong:
        assert "Split" in facts.runtime_error
        model = with_opset(onnx.load(str(path)), 13)
        assert check_exported(model).runtime_error == ""


def test_a_label_that_its_operators_belie_is_found():
    model = onnx.load(str(EXPORTED_FILES / "chainer-residual.onnx"))
    facts = check_exported(with_opset(model, 18))
    assert not facts.consistent and "axes" in facts.checker_error
    assert facts.newest_consistent == 17


def words(tied: str) -> Model:
    return Model(
        input=Input(shape=(4,), kind="index"),
        nodes=(
            Node(name="table", layer=Embedding(entries=7, features=5)),
            Node(name="tanh", layer=Tanh()),
            Node(name="logits", layer=Linear(out_features=7, tied_to=tied)),
        ),
    )


def written_twice(table: np.ndarray, matrix: np.ndarray) -> onnx.ModelProto:
    """A language model with an initialiser for each of its two matrices, as exporters fold them."""
    make = helper.make_node
    nodes = [
        make("Gather", ["table", "x"], ["rows"]),
        make("Tanh", ["rows"], ["bent"]),
        make("MatMul", ["bent", "matrix"], ["product"]),
        make("Add", ["product", "bias"], ["y"]),
    ]
    held = {"table": table, "matrix": matrix.T, "bias": np.arange(7.0)}
    tensors = [onnx.numpy_helper.from_array(a.astype(np.float32), n) for n, a in held.items()]
    x = helper.make_tensor_value_info("x", TensorProto.INT64, ["N", 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 4, 7])
    graph = helper.make_graph(nodes, "g", [x], [y], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def test_a_tied_weight_is_one_however_often_it_is_written():
    table = np.random.default_rng(0).standard_normal((7, 5))
    found = compare_structure(graph_of(words("table")), written_twice(table, table))
    assert found.equal, found.differences
    assert found.canonical_parameters == found.exported_parameters == 7 * 5 + 7
    assert compare_structure(graph_of(words("table")), graph_of(words("table"))).equal


def test_two_weights_are_not_one_that_is_tied():
    first, second = np.random.default_rng(0).standard_normal((2, 7, 5))
    found = compare_structure(graph_of(words("table")), written_twice(first, second))
    (told,) = found.differences
    assert (told.layer, told.what) == ("logits", "weight of an embedding")
    assert (told.expected, told.found) == ("True", "None")


def test_equal_weights_are_two_where_nothing_is_tied():
    table = np.random.default_rng(0).standard_normal((7, 5))
    found = compare_structure(graph_of(words("")), written_twice(table, table))
    assert found.equal and found.exported_parameters == 2 * 7 * 5 + 7


def test_a_bias_of_zeros_may_be_left_out_by_an_exporter():
    model = Model(
        input=Input(shape=(2, 9, 9)),
        nodes=(
            Node(name="conv", layer=Conv(out_channels=3, kernel=(3, 3))),
            Node(name="flat", layer=Flatten()),
            Node(name="one", layer=Linear(out_features=4)),
            Node(name="two", layer=Linear(out_features=5)),
        ),
    )
    wanted = graph_of(model)
    for layer in ("conv", "one"):
        exported = graph_of(changed(model, layer, bias=False))
        still = {f"{name}.bias": np.zeros(4) for name in ("conv", "one", "two")}
        assert compare_structure(wanted, exported, still).equal
        # It is not zeros, or nothing says that it is.
        for known in ({**still, f"{layer}.bias": np.array([0, 1e-9])}, {}):
            (found,) = compare_structure(wanted, exported, known).differences
            assert (found.layer, found.what, found.found) == (layer, "bias", "False")
        # One too many is no exporter's doing.
        assert not compare_structure(exported, wanted, still).equal


def test_zeros_that_nobody_holds_are_no_bias():
    """torch's exporter writes them for a convolution without a bias, where it does not optimise."""
    model = Model(
        input=Input(shape=(2, 9, 9)),
        nodes=(Node(name="conv", layer=Conv(out_channels=3, kernel=(3, 3), bias=False)),),
    )
    wanted, exported = graph_of(model), graph_of(model)
    for number, equal in ((0.0, True), (1e-9, False)):
        exported.graph.ClearField("node")
        exported.graph.node.extend(
            [
                helper.make_node("Constant", [], ["number"], value_float=number),
                helper.make_node("Constant", [], ["size"], value_ints=[3]),
                helper.make_node("Expand", ["number", "size"], ["zeros"]),
                helper.make_node("Conv", ["input", "conv.weight", "zeros"], ["logits"]),
            ]
        )
        exported.graph.output[0].name = "logits"
        assert compare_structure(wanted, exported).equal is equal


def of_sequences(*nodes: str) -> onnx.ModelProto:
    """What nodes make of x [N, 6, 4] and constants: a [4, 2], b [4, 4], both [4, 6] (a, then b),
    and c [2], d [4] and cd [6] for biases."""
    draw = np.random.default_rng(0).standard_normal
    held = {"a": draw((4, 2)), "b": draw((4, 4)), "c": draw(2), "d": np.zeros(4)}
    held["both"] = np.concatenate([held["a"], held["b"]], 1)
    held["cd"] = np.concatenate([held["c"], held["d"]])
    written = "\n".join(nodes)
    graph = onnx.parser.parse_graph(
        f"g (float[N, 6, 4] x) => (float[N, K, L] first, float[N, O, P] second) {{{written}}}"
    )
    read = {name for node in graph.node for name in node.input}
    tensors = [(name, array.astype(np.float32)) for name, array in held.items() if name in read]
    graph.initializer.extend(onnx.numpy_helper.from_array(a, name) for name, a in tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


SPLIT = "first, second = Split<axis = -1>(%s, sizes)"
SIZES = "sizes = Constant<value_ints = [2, 4]>()"


def test_parts_of_what_one_matrix_makes_are_linear_layers():
    apart = of_sequences("first = MatMul(x, a)", "second = MatMul(x, b)")
    at_once = of_sequences(SIZES, "p = MatMul(x, both)", SPLIT % "p")
    for wanted, exported in ((apart, at_once), (at_once, apart)):
        found = compare_structure(wanted, exported)
        assert found.equal, found.differences
        assert found.canonical_parameters == found.exported_parameters == 4 * 6
    # Of other sizes they are others.
    assert not compare_structure(
        apart, of_sequences(SIZES.replace("2, 4", "1, 5"), "p = MatMul(x, both)", SPLIT % "p")
    ).equal


def test_parts_may_be_split_along_an_axis_of_their_own():
    apart = of_sequences("first = MatMul(x, a)", "second = MatMul(x, b)")

    def split(shape: str, axis: int, *sizes: int) -> onnx.ModelProto:
        return of_sequences(
            "p = MatMul(x, both)",
            f"sizes = Constant<value_ints = {list(sizes)}>()",
            f"shape = Constant<value_ints = {shape}>()",
            "turned = Reshape(p, shape)",
            f"one, other = Split<axis = {axis}>(turned, sizes)",
            "rows = Constant<value_ints = [2, 6, -1]>()",
            "first = Reshape(one, rows)",
            "second = Reshape(other, rows)",
        )

    assert compare_structure(apart, split("[-1, 3, 2]", 1, 1, 2)).equal
    # Which features they are does not matter, but they are to be those of every row.
    assert compare_structure(apart, split("[-1, 2, 3]", 2, 1, 2)).equal
    assert not compare_structure(apart, split("[3, -1, 2]", 0, 1, 2)).equal
    assert not compare_structure(apart, split("[-1, 9, 2]", 1, 3, 6)).equal


def test_parts_of_a_bias_belong_to_the_layers_of_its_parts():
    apart = of_sequences(
        "p = MatMul(x, a)", "q = MatMul(x, b)", "first = Add(p, c)", "second = Add(q, d)"
    )
    at_once = of_sequences(SIZES, "p = MatMul(x, both)", "q = Add(p, cd)", SPLIT % "q")
    found = compare_structure(apart, at_once)
    assert found.equal and found.exported_parameters == 5 * 6
    # The second's is zeros, which an exporter may leave out; the first's is not.
    assert compare_structure(
        at_once, of_sequences("p = MatMul(x, a)", "first = Add(p, c)", "second = MatMul(x, b)")
    ).equal
    assert not compare_structure(
        at_once, of_sequences("q = MatMul(x, b)", "first = MatMul(x, a)", "second = Add(q, d)")
    ).equal


TURNED = "q = MatMul(x, both)\n p = Transpose<perm = [0, 2, 1]>(q)"


def test_splits_of_steps_are_slices():
    apart = of_sequences("first = MatMul(x, a)", "second = MatMul(x, b)")
    for before, axis in (("p = MatMul(x, both)", 1), (TURNED, 2)):
        split = of_sequences(SIZES, before, (SPLIT % "p").replace("-1", str(axis)))
        parts = [
            f"{name}_start = Constant<value_ints = [{start}]>()\n"
            f"{name}_end = Constant<value_ints = [{end}]>()\n"
            f"{name} = Slice(p, {name}_start, {name}_end, axis)"
            for name, start, end in (("first", 0, 2), ("second", 2, 6))
        ]
        sliced = of_sequences(f"axis = Constant<value_ints = [{axis}]>()", before, *parts)
        found = compare_structure(sliced, split)
        assert found.equal, found.differences
        assert not compare_structure(apart, split).equal
    # Features that were turned to where the steps had been are features still.
    turned = of_sequences(SIZES, TURNED, (SPLIT % "p").replace("-1", "1"))
    assert compare_structure(apart, turned).equal


def concatenated(*, nested: bool, axis: int = 1) -> onnx.ModelProto:
    nodes = (
        Node(name="conv", layer=Conv(out_channels=3, kernel=(1, 1))),
        Node(name="relu", layer=ReLU()),
        Node(name="two", layer=Concat(axis=axis), inputs=("relu", "conv")),
        Node(name="all", layer=Concat(), inputs=("two", "two") if nested else ("relu", "conv") * 2),
    )
    return graph_of(Model(input=Input(shape=(2, 8, 8)), nodes=nodes))


def test_what_is_concatenated_twice_is_concatenated_once():
    assert compare_structure(concatenated(nested=True), concatenated(nested=False)).equal
    assert compare_structure(concatenated(nested=False), concatenated(nested=True)).equal
    # What only seems to arrange is seen through.
    again = twice(Concat(), Reshape(shape=(4, 8, 8)), Concat(), Flatten())
    assert compare_structure(again, twice(Concat(), Concat(), Flatten())).equal
    other = concatenated(nested=True, axis=2)
    assert not compare_structure(concatenated(nested=False), other).equal
    assert not compare_structure(other, concatenated(nested=True)).equal


@pytest.mark.parametrize("layer", [MaxPool, AveragePool, Conv])
def test_windows_that_are_cut_off_are_none(layer):
    """As torch's adapter has padding that is wider than the layer's, cut where it was not wanted."""
    of = {"out_channels": 2} if layer is Conv else {}
    window = layer(kernel=(4, 4), stride=(2, 2), pads=(1, 1, 1, 1), **of)
    wide = msgspec.structs.replace(window, pads=(1, 1, 3, 2))
    assert compare_structure(
        maps(window), maps(wide, Slice(starts=(0, 0, 0), ends=(2, 4, 4)))
    ).equal
    assert not compare_structure(maps(window), maps(wide)).equal
    assert not compare_structure(
        maps(window), maps(wide, Slice(starts=(0, 1, 0), ends=(2, 5, 4)))
    ).equal
    assert not compare_structure(
        maps(window), maps(wide, Slice(starts=(0, 0, 0), ends=(2, 3, 4)))
    ).equal


def test_a_relu_of_a_relu_is_one():
    assert compare_structure(maps(ReLU(), ReLU()), maps(ReLU())).equal
    assert compare_structure(maps(ReLU()), maps(ReLU(), ReLU())).equal
    assert not compare_structure(maps(ReLU(), GlobalAveragePool()), maps(GlobalAveragePool())).equal


def twice(*layers) -> onnx.ModelProto:
    """Each that concatenates reads the one before, and the input."""
    names = [f"layer{k}" for k in range(len(layers))]
    nodes = tuple(
        Node(name=name, layer=layer, inputs=(before, "input") if layer == Concat() else (before,))
        for name, layer, before in zip(names, layers, ["input", *names])
    )
    return graph_of(Model(input=Input(shape=(2, 8, 8)), nodes=nodes))


def test_a_batch_normalisation_may_be_in_the_layer_normalisation_before():
    both = maps(LayerNorm(), BatchNorm(), shape=(6,))
    found = compare_structure(both, maps(LayerNorm(), shape=(6,)))
    assert found.equal and found.unseen == ("layer1",)
    assert not compare_structure(maps(LayerNorm(), shape=(6,)), both).equal


def test_some_batch_normalisations_may_be_folded_and_others_not():
    """As tf2onnx does where a convolution is of each channel by itself."""
    whole = Conv(out_channels=2, kernel=(2, 2), bias=False)
    deep = msgspec.structs.replace(whole, groups=2)

    def network(*pairs):
        layers = [layer for pair in pairs for layer in (*pair, ReLU())]
        return maps(*layers, GlobalAveragePool())

    def found(*pairs):
        return compare_structure(wanted, network(*pairs))

    norm, other = (BatchNorm(),), (BatchNorm(epsilon=1e-3),)
    wanted = network(*[(layer, *norm) for layer in (whole, deep, whole, deep)])
    folded = (msgspec.structs.replace(whole, bias=True),)
    mixed = found(folded, (deep, *norm), folded, (deep, *norm))
    assert mixed.equal and mixed.unseen == ("layer1", "layer7")
    every = found(*[(msgspec.structs.replace(layer, bias=True),) for layer in (whole, deep) * 2])
    assert every.equal and every.unseen == ("layer1", "layer4", "layer7", "layer10")
    planted = found(folded, (deep, *other), folded, (deep, *norm))
    assert [(one.layer, one.what) for one in planted.differences] == [("layer4", "epsilon")]
    assert not found(folded, (deep, *norm), folded, (deep,)).equal


def test_what_is_computed_twice_of_the_same_is_computed_once():
    def summed(first: str, second: str, layer) -> onnx.ModelProto:
        nodes = (
            Node(name="one", layer=layer, inputs=("input",)),
            Node(name="two", layer=layer, inputs=("input",)),
            Node(name="sum", layer=Add(), inputs=(first, second)),
        )
        return graph_of(Model(input=Input(shape=(2, 8, 8)), nodes=nodes))

    assert compare_structure(summed("one", "two", ReLU()), summed("one", "one", ReLU())).equal
    # Two layers of one kind that have weights are two.
    conv = Conv(out_channels=2, kernel=(1, 1))
    assert not compare_structure(summed("one", "two", conv), summed("one", "one", conv)).equal


@pytest.mark.parametrize("steps", [2, 3, 6])
def test_a_mean_over_time_may_be_of_the_first_axis(steps: int) -> None:
    """As tf2onnx has it after an LSTM, whose steps come before the batch."""
    nodes = (Node(name="m", layer=ReduceMean(axis=1)), Node(name="l", layer=Linear(out_features=3)))
    model = Model(input=Input(shape=(steps, 4)), nodes=nodes)
    canonical = graph_of(model)
    for axes, equal in (([0], True), ([2], False)):
        exported = graph_of(model)
        place, mean = next(
            pair for pair in enumerate(exported.graph.node) if pair[1].op_type == "ReduceMean"
        )
        reads = mean.input[0]
        mean.CopyFrom(
            helper.make_node("ReduceMean", ["swapped"], mean.output, axes=axes, keepdims=0)
        )
        swap = helper.make_node("Transpose", [reads], ["swapped"], perm=[1, 0, 2])
        exported.graph.node.insert(place, swap)
        if equal:
            assert compare_structure(canonical, exported).equal
        else:  # of the features: the matrix does not fit
            with pytest.raises(UnsupportedError):
                compare_structure(canonical, exported)


@pytest.mark.parametrize("operator", ["Slice", "Concat", "Conv", "BatchNormalization", "Clip"])
def test_an_operator_that_no_rule_reads_is_compared_too(operator: str) -> None:
    """One whose constants depend on the input, among others that are read."""
    real = ("N", 4, 4, 4)
    inputs = {
        "Slice": ["x", "zero", "one", "zero"],
        "Concat": ["x", "held"],
        "Conv": ["x", "x"],
        "BatchNormalization": ["x", "w", "w", "w", "w"],
        "Clip": ["x", "least"],
    }
    attributes = {"Concat": {"axis": 1}, "Conv": {"pads": [1, 1, 1, 1]}}
    again = {
        "Slice": helper.make_node("Slice", ["y", "zero", "one", "two"], ["z"]),
        "Concat": helper.make_node("Concat", ["y", "y"], ["z"], axis=1),
    }
    model = helper.make_model(
        helper.make_graph(
            [
                helper.make_node("ReduceMean", ["x"], ["w"], axes=[0, 2, 3], keepdims=0),
                helper.make_node("ReduceMean", ["x"], ["least"], keepdims=0),
                helper.make_node(operator, inputs[operator], ["y"], **attributes.get(operator, {})),
                again.get(operator, helper.make_node("Relu", ["y"], ["z"])),
            ],
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, real)],
            [helper.make_tensor_value_info("z", TensorProto.FLOAT, [None] * 4)],
            [
                numpy_helper.from_array(np.asarray(array), name)
                for name, array in {
                    "zero": np.array([0]),
                    "one": np.array([1]),
                    "two": np.array([2]),
                    "held": np.ones((2, 1, 4, 4), np.float32),
                }.items()
            ],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
    )
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 2 if operator != "Conv" else 4
    described = graph_of(MODELS["lenet"])
    assert compare_structure(model, model).equal
    assert not compare_structure(described, model).equal
    assert not compare_structure(model, described).equal
