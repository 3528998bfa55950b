"""The layers of a model. Each is defined by one or a few ONNX operators with explicit attributes.

Nothing depends on a framework's default: pads, rounding of the output size, whether averages count
padding, epsilon and its place, gate order. Feature maps are [N, C, H, W], films and volumes [N, C, D, H, W],
and sequences [N, T, features], whatever layout a framework computes in. Operators are those of ONNX opset
17, https://onnx.ai/onnx/operators/.

:func:`dlb.workload.shapes.parameter_shapes` returns the names and shapes of a layer's parameters, in
canonical (ONNX) layout.
"""

from __future__ import annotations

from typing import Any, Literal, Union, get_args

import msgspec

from dlb.workload.primitives import (
    FUNCTION_NUMBERS,
    Binary,
    Elementwise,
    GatherElements,
    Mask,
    MatMul,
    Reduce,
    Resize,
    Scale,
    Shift,
    Softmax,
    TopK,
    Where,
)

__all__ = [
    "FUNCTION_NUMBERS",
    "GATES",
    "GELU",
    "GRU",
    "LRN",
    "LSTM",
    "RECURRENT",
    "RNN",
    "Activation",
    "Add",
    "Attention",
    "AveragePool",
    "BatchNorm",
    "Binary",
    "Concat",
    "Conv",
    "ConvTranspose",
    "Dropout",
    "Elementwise",
    "Embedding",
    "Fill",
    "Flatten",
    "Gather",
    "GatherElements",
    "GlobalAveragePool",
    "GroupNorm",
    "HardSigmoid",
    "Layer",
    "LayerNorm",
    "Linear",
    "Mask",
    "MatMul",
    "MaxPool",
    "Mul",
    "Normal",
    "PReLU",
    "Pad",
    "PositionEmbedding",
    "RMSNorm",
    "ReLU",
    "ReLU6",
    "Reduce",
    "ReduceMean",
    "Reshape",
    "Resize",
    "Scale",
    "Select",
    "Shift",
    "Sigmoid",
    "Slice",
    "Softmax",
    "Tanh",
    "TopK",
    "Transpose",
    "TruncatedNormal",
    "Uniform",
    "Where",
    "default_of",
    "has_two_biases",
    "layer_types",
    "type_name",
]


class _Distribution(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type"):
    """Base class of initialisers with a number."""


class Normal(_Distribution, tag="normal", kw_only=True, frozen=True):
    """Gaussian of mean 0 and standard deviation ``std`` (Caffe's gaussian filler)."""

    std: float


class TruncatedNormal(_Distribution, tag="truncated_normal", kw_only=True, frozen=True):
    """Gaussian of mean 0; values beyond two ``std`` are drawn again (tf.random.truncated_normal).

    ``std`` belongs to the Gaussian. The standard deviation after truncation is 0.88 times as large.
    """

    std: float


class Uniform(_Distribution, tag="uniform", kw_only=True, frozen=True):
    """Uniform between -``limit`` and ``limit`` (Zaremba et al. 2014: 0.1)."""

    limit: float


class Fill(_Distribution, tag="fill", kw_only=True, frozen=True):
    """``value`` everywhere."""

    value: float


#: The spread of the glorot, he and lecun schemes follows from the layer's sizes (Glorot and Bengio 2010;
#: He et al. 2015; LeCun et al. 1998, also Caffe's xavier filler). ``fan_in`` is uniform between
#: -1 / sqrt(fan-in) and 1 / sqrt(fan-in), as in Torch 7; a bias uses the fan-in of its weight.
Initializer = Union[
    Literal[
        "zeros",
        "ones",
        "glorot_uniform",
        "glorot_normal",
        "he_uniform",
        "he_normal",
        "lecun_uniform",
        "lecun_normal",
        "fan_in",
    ],
    Normal,
    TruncatedNormal,
    Uniform,
    Fill,
]
#: A number for each axis of a window: height and width, or depth, height and width.
Sizes = tuple[int, ...]
#: What is added or left out before each axis of a window, then after each (ONNX order).
Pads = tuple[int, ...]


class _Layer(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type"):
    """Base class of layers: immutable, compared by value, unknown fields are rejected."""


class _Windowed(_Layer, frozen=True):
    """Base class of layers with windows. Sizes that are left out get a number for each of the kernel's axes."""

    def __post_init__(self) -> None:
        for name, default in _defaults_of_windows(self).items():
            if getattr(self, name) == ():
                msgspec.structs.force_setattr(self, name, default)


def _defaults_of_windows(layer: _Windowed) -> dict[str, Sizes]:
    axes = len(layer.kernel)  # type: ignore[attr-defined]
    defaults = {
        "stride": (1,) * axes,
        "pads": (0,) * (2 * axes),
        "output_padding": (0,) * axes,
        "dilation": (1,) * axes,
    }
    return {
        field.name: defaults[field.name]
        for field in msgspec.structs.fields(layer)
        if field.name in defaults and not field.required
    }


class Conv(_Windowed, tag="conv", kw_only=True, frozen=True):
    """Convolution over two or three axes, ONNX Conv.

    [N, C, H, W] to [N, out_channels, H', W'] with
    H' = floor((H + top + bottom - dilation * (kernel - 1) - 1) / stride) + 1. With three numbers in ``kernel``
    [N, C, D, H, W] to [N, out_channels, D', H', W'].

    Parameters: ``weight`` [out_channels, C / groups, kH, kW] or [out_channels, C / groups, kD, kH, kW],
    ``bias`` [out_channels].

    Attributes:
        out_channels: number of filters.
        kernel: height and width of a filter, or depth, height and width.
        stride: step along each axis; 1 if left out.
        pads: zeros added before each axis, then after each (ONNX order): top, left, bottom, right; none if
            left out.
        dilation: spacing of the filter's taps along each axis; 1 if left out.
        groups: number of groups that channels are divided into.
        bias: whether a bias is added.
        init, bias_init: how ``weight`` and ``bias`` are initialised.
    """

    out_channels: int
    kernel: Sizes
    stride: Sizes = ()
    pads: Pads = ()
    dilation: Sizes = ()
    groups: int = 1
    bias: bool = True
    init: Initializer = "glorot_uniform"
    bias_init: Initializer = "zeros"


class ConvTranspose(_Windowed, tag="conv_transpose", kw_only=True, frozen=True):
    """Transposed convolution over two or three axes, ONNX ConvTranspose.

    [N, C, H, W] to [N, out_channels, H', W'] with
    H' = (H - 1) * stride + dilation * (kernel - 1) + 1 + output_padding - top - bottom. With three numbers in
    ``kernel`` [N, C, D, H, W] to [N, out_channels, D', H', W'].
    It is the gradient of a convolution by its input: each element is added, times the filter, to the
    places that the filter covers (Dumoulin and Visin, arXiv:1603.07285, section 4).

    Parameters: ``weight`` [C, out_channels / groups, kH, kW] or [C, out_channels / groups, kD, kH, kW],
    ``bias`` [out_channels].

    Attributes:
        out_channels: channels of the output.
        kernel: height and width of a filter, or depth, height and width.
        stride: distance of the places of neighbouring elements along each axis; 1 if left out.
        pads: rows and columns left out before each axis, then after each (ONNX order): top, left, bottom,
            right; none if left out.
        output_padding: what is added at the end of each axis: rows at the bottom and columns at the right;
            below the stride.
        dilation: spacing of the filter's taps along each axis; 1 if left out.
        groups: number of groups that channels are divided into.
        bias: whether a bias is added.
        init, bias_init: how ``weight`` and ``bias`` are initialised.
    """

    out_channels: int
    kernel: Sizes
    stride: Sizes = ()
    pads: Pads = ()
    output_padding: Sizes = ()
    dilation: Sizes = ()
    groups: int = 1
    bias: bool = True
    init: Initializer = "glorot_uniform"
    bias_init: Initializer = "zeros"


class Linear(_Layer, tag="linear", kw_only=True, frozen=True):
    """Fully connected layer over the last axis, ONNX Gemm (rank 2) or MatMul and Add (rank 3).

    [..., features] to [..., out_features].

    Parameters: ``weight`` [out_features, features], ``bias`` [out_features].

    Attributes:
        tied_to: an earlier embedding [out_features, features] whose ``weight`` this layer shares
            (Press and Wolf, arXiv:1608.05859). The gradient of that weight is the sum of both
            layers' gradients. Empty for a weight of its own.
    """

    out_features: int
    bias: bool = True
    init: Initializer = "glorot_uniform"
    bias_init: Initializer = "zeros"
    tied_to: str = ""


class BatchNorm(_Layer, tag="batch_norm", kw_only=True, frozen=True):
    """Batch normalisation over every axis but the second, ONNX BatchNormalization.

    In training, the batch's mean and biased variance normalise. The running statistics become
    ``momentum * running + (1 - momentum) * batch``. The running variance uses the *biased* variance,
    as in ONNX (Ioffe and Szegedy, arXiv:1502.03167, use the unbiased one).

    Parameters: ``scale``, ``bias`` [C]. State, not trained: ``mean``, ``variance`` [C].
    """

    epsilon: float = 1e-5
    momentum: float = 0.9


class LayerNorm(_Layer, tag="layer_norm", kw_only=True, frozen=True):
    """Layer normalisation over the last axis, ONNX LayerNormalization with axis -1.

    [..., features]: ``scale * (x - mean) / sqrt(variance + epsilon) + bias`` with each row's own
    mean and biased variance (Ba et al. 2016, arXiv:1607.06450).

    Parameters: ``scale``, ``bias`` [features].
    """

    epsilon: float = 1e-5


class GroupNorm(_Layer, tag="group_norm", kw_only=True, frozen=True):
    """Group normalisation of [N, C, H, W], [N, C, D, H, W] or [N, C] (Wu and He, arXiv:1803.08494).

    ``scale * (x - mean) / sqrt(variance + epsilon) + bias``, with mean and biased variance of each group
    of a sample: C / groups consecutive channels with all their places. With a group for each channel it
    is instance normalisation (Ulyanov et al., arXiv:1607.08022), ONNX InstanceNormalization. Otherwise
    ONNX Reshape, InstanceNormalization, Reshape, Mul and Add.

    Parameters: ``scale``, ``bias`` [C].

    Attributes:
        groups: number of groups that channels are divided into; each has 2 numbers or more.
        epsilon: under the root; above 0.
    """

    groups: int
    epsilon: float = 1e-5


class RMSNorm(_Layer, tag="rms_norm", kw_only=True, frozen=True):
    """Normalisation by the root mean square over the last axis (Zhang and Sennrich, arXiv:1910.07467).

    [..., features]: ``scale * x / sqrt(mean of x * x + epsilon)`` with each row's own mean. ONNX
    RMSNormalization of operator set 23; before it Mul, ReduceMean, Add, Sqrt, Div and Mul.

    Parameters: ``scale`` [features].

    Attributes:
        epsilon: under the root; above 0.
    """

    epsilon: float = 1e-5


class LRN(_Layer, tag="lrn", kw_only=True, frozen=True):
    """Local response normalisation across channels, ONNX LRN.

    ``x / (bias + alpha / size * sum of squares over size channels) ** beta``
    (Krizhevsky et al. 2012, section 3.3, whose alpha is not divided by the size).
    """

    size: int
    alpha: float = 1e-4
    beta: float = 0.75
    bias: float = 1.0


class MaxPool(_Windowed, tag="max_pool", kw_only=True, frozen=True):
    """Max pooling over two or three axes, ONNX MaxPool; padding is never the maximum.

    ``ceil_mode`` rounds the size up. ``dilation`` is the spacing of a window's elements, 1 if left out.
    """

    kernel: Sizes
    stride: Sizes
    pads: Pads = ()
    ceil_mode: bool = False
    dilation: Sizes = ()


class AveragePool(_Windowed, tag="average_pool", kw_only=True, frozen=True):
    """Average pooling over two or three axes, ONNX AveragePool; ``count_include_pad`` divides by the whole
    kernel."""

    kernel: Sizes
    stride: Sizes
    pads: Pads = ()
    ceil_mode: bool = False
    count_include_pad: bool = False


class GlobalAveragePool(_Layer, tag="global_average_pool", frozen=True):
    """Mean over every axis after the channels, ONNX GlobalAveragePool.

    [N, C, H, W] to [N, C, 1, 1], and [N, C, D, H, W] to [N, C, 1, 1, 1].
    """


class ReLU(_Layer, tag="relu", frozen=True):
    """max(x, 0), ONNX Relu. The gradient at 0 is 0."""


class ReLU6(_Layer, tag="relu6", frozen=True):
    """min(max(x, 0), 6), ONNX Clip (Howard et al., arXiv:1704.04861). The gradient at 0 is 0."""


class Tanh(_Layer, tag="tanh", frozen=True):
    """Hyperbolic tangent, ONNX Tanh."""


class Sigmoid(_Layer, tag="sigmoid", frozen=True):
    """1 / (1 + exp(-x)), ONNX Sigmoid."""


class HardSigmoid(_Layer, tag="hard_sigmoid", frozen=True):
    """min(max(x + 3, 0), 6) / 6, ONNX HardSigmoid with alpha = 1/6 and beta = 0.5 (Howard et al.,
    arXiv:1905.02244, section 5.2). ``alpha`` is exactly 1/6, which float32 cannot represent."""


class GELU(_Layer, tag="gelu", kw_only=True, frozen=True):
    """x times the normal distribution function of x (Hendrycks and Gimpel, arXiv:1606.08415).

    ``0.5 * x * (1 + erf(x / sqrt(2)))``, or with ``approximate = "tanh"``
    ``0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x ** 3)))``: ONNX Gelu, or
    Erf or Tanh in operator sets before 20.
    """

    approximate: Literal["none", "tanh"] = "none"


class PReLU(_Layer, tag="prelu", kw_only=True, frozen=True):
    """x above 0, else slope * x, with trained slopes (He et al., arXiv:1502.01852), ONNX PRelu.

    The gradient at 0 is the slope.

    Parameters: ``slope`` [C] of a map [N, C, H, W] or [N, C, D, H, W], or of features [N, C]; with ``shared``
    [1], of any value.

    Attributes:
        shared: whether all channels have one slope.
        init: the slopes before training.
    """

    shared: bool = False
    init: float = 0.25


class Dropout(_Layer, tag="dropout", kw_only=True, frozen=True):
    """Dropout, ONNX Dropout. In training, it zeroes elements with probability ``rate`` and scales the
    others by 1 / (1 - rate); otherwise it is the identity. In proofs, dlb supplies the mask."""

    rate: float = 0.5


class Add(_Layer, tag="add", frozen=True):
    """Elementwise sum of two inputs of one shape, ONNX Add (no broadcasting)."""


class Mul(_Layer, tag="mul", frozen=True):
    """Elementwise product of two inputs, ONNX Mul.

    The inputs have one shape, or are a map [N, C, H, W] and a number for each channel,
    [N, C, 1, 1], as in squeeze-and-excitation (Hu et al., arXiv:1709.01507). So may [N, C, D, H, W] and
    [N, C, 1, 1, 1] be.
    """


class Concat(_Layer, tag="concat", kw_only=True, frozen=True):
    """Inputs joined along ``axis``, ONNX Concat; all other axes must agree."""

    axis: int = 1


class Flatten(_Layer, tag="flatten", frozen=True):
    """[N, C, H, W] to [N, C * H * W] in that (row-major) order, ONNX Flatten with axis 1."""


class Reshape(_Layer, tag="reshape", kw_only=True, frozen=True):
    """[N, ...] to [N, *shape] in row-major order, ONNX Reshape."""

    shape: tuple[int, ...]


class Transpose(_Layer, tag="transpose", kw_only=True, frozen=True):
    """Axes in another order, ONNX Transpose with perm [0, *axes].

    ``axes`` lists, for each axis of the output except the batch (axis 0), the axis of the input.
    """

    axes: tuple[int, ...]


class ReduceMean(_Layer, tag="reduce_mean", kw_only=True, frozen=True):
    """Mean of a sequence [N, T, features] over ``axis``, which is removed; ONNX ReduceMean.

    Axis 1 is time, axis 2 features.
    """

    axis: int = 1


class Select(_Layer, tag="select", kw_only=True, frozen=True):
    """One index of a sequence [N, T, features] along ``axis``, which is removed; ONNX Gather.

    ``index`` counts from 0, or from the end: -1 is the last.
    """

    axis: int = 1
    index: int


class Pad(_Layer, tag="pad", kw_only=True, frozen=True):
    """Padding of a sample with ``value``, ONNX Pad in constant mode.

    ``pads`` lists the padding before each axis except the batch, then the padding after each
    (ONNX order).
    """

    pads: tuple[int, ...]
    value: float = 0.0


class Slice(_Layer, tag="slice", kw_only=True, frozen=True):
    """A range of every axis except the batch, ONNX Slice.

    It takes the indices ``starts``, ``starts + steps``, ... below ``ends``, with one number per axis.
    Negative starts and ends count from the end. Without ``steps``, every step is 1.
    """

    starts: tuple[int, ...]
    ends: tuple[int, ...]
    steps: tuple[int, ...] = ()


class Gather(_Layer, tag="gather", kw_only=True, frozen=True):
    """Indices along ``axis`` in any order, with repetition, ONNX Gather.

    ``indices`` count from 0, or from the end: -1 is the last.
    """

    axis: int = 1
    indices: tuple[int, ...]


class PositionEmbedding(_Layer, tag="position_embedding", kw_only=True, frozen=True):
    """A learned table added to every sequence [N, T, features], ONNX Add.

    Parameters: ``weight`` [T, features].
    """

    init: Initializer = "glorot_uniform"


class Embedding(_Layer, tag="embedding", kw_only=True, frozen=True):
    """Rows of a table by integer index, ONNX Gather on axis 0: [N, T] to [N, T, features].

    Parameters: ``weight`` [entries, features].
    """

    entries: int
    features: int
    init: Initializer = "glorot_uniform"


class LSTM(_Layer, tag="lstm", kw_only=True, frozen=True):
    """One forward LSTM layer over [N, T, features], ONNX LSTM, zero initial state.

    Gates in ONNX order: input, output, forget, cell (iofc); no peepholes; tanh and sigmoid.
    There is *one* bias per gate: ONNX's B is [bias, 0]. Frameworks with two biases train one.
    Output: the hidden state at every step [N, T, hidden].

    Parameters: ``input_weight`` [4 * hidden, features], ``recurrent_weight`` [4 * hidden, hidden],
    ``bias`` [4 * hidden].
    """

    hidden: int
    init: Initializer = "glorot_uniform"


class GRU(_Layer, tag="gru", kw_only=True, frozen=True):
    """One forward GRU layer over [N, T, features], ONNX GRU, zero initial state.

    Gates in ONNX order: update, reset, hidden (zrh); tanh and sigmoid. Frameworks differ in the side of
    the recurrent product on which the reset gate acts, so ``linear_before_reset`` has no default.
    Output: the hidden state at every step [N, T, hidden].

    Parameters: ``input_weight`` [3 * hidden, features], ``recurrent_weight`` [3 * hidden, hidden],
    ``bias`` [3 * hidden]; with ``linear_before_reset`` [2, 3 * hidden], a bias for each product, as all
    frameworks that have this form train two.

    Attributes:
        hidden: number of units.
        linear_before_reset: whether the reset gate multiplies the recurrent product and its bias
            (torch, cuDNN, Keras's ``reset_after``), not the state before it (Cho et al.,
            arXiv:1406.1078).
        init: how both weights are initialised.
    """

    hidden: int
    linear_before_reset: bool
    init: Initializer = "glorot_uniform"


class RNN(_Layer, tag="rnn", kw_only=True, frozen=True):
    """One forward layer of simple recurrent units over [N, T, features] (Elman 1990), ONNX RNN.

    ``h = f(W x + R h + b)`` from a zero initial state, with f tanh or ReLU. There is *one* bias: ONNX's
    B is [bias, 0]. Frameworks with two biases train one.
    Output: the hidden state at every step [N, T, hidden].

    Parameters: ``input_weight`` [hidden, features], ``recurrent_weight`` [hidden, hidden], ``bias``
    [hidden].
    """

    hidden: int
    activation: Literal["tanh", "relu"] = "tanh"
    init: Initializer = "glorot_uniform"


class Attention(_Layer, tag="attention", kw_only=True, frozen=True):
    """Multi-head self-attention over [N, T, features] (Vaswani et al. 2017, arXiv:1706.03762).

    Queries, keys and values are linear maps of the input. Their features are divided into ``heads``
    consecutive heads of d features. Each head computes ``softmax(Q K^T / sqrt(d)) V``. With
    ``causal``, a step attends only to itself and earlier steps. A last linear map reads the
    concatenated heads. ONNX MatMul, Reshape, Transpose, Add and Softmax.

    Parameters, as in a linear layer: ``query_weight``, ``key_weight``, ``value_weight``,
    ``output_weight`` [features, features], and with ``bias`` ``query_bias``, ``key_bias``,
    ``value_bias``, ``output_bias`` [features].
    """

    heads: int
    causal: bool = False
    bias: bool = True
    init: Initializer = "glorot_uniform"


#: Layers over the steps of a sequence.
RECURRENT = (LSTM, GRU, RNN)
#: Their gates, each of which has ``hidden`` rows of the weights.
GATES: dict[type, int] = {LSTM: 4, GRU: 3, RNN: 1}

#: The linear maps of an attention, in the order of its parameters.
ATTENTION_MAPS = ("query", "key", "value", "output")


Layer = Union[
    Conv,
    ConvTranspose,
    Linear,
    BatchNorm,
    LayerNorm,
    GroupNorm,
    RMSNorm,
    LRN,
    MaxPool,
    AveragePool,
    GlobalAveragePool,
    ReLU,
    ReLU6,
    Tanh,
    Sigmoid,
    HardSigmoid,
    GELU,
    Elementwise,
    PReLU,
    Dropout,
    Add,
    Mul,
    Binary,
    Where,
    MatMul,
    Scale,
    Shift,
    Mask,
    Resize,
    Softmax,
    Reduce,
    TopK,
    GatherElements,
    Concat,
    Flatten,
    Reshape,
    Transpose,
    ReduceMean,
    Select,
    Pad,
    Slice,
    Gather,
    Embedding,
    PositionEmbedding,
    LSTM,
    GRU,
    RNN,
    Attention,
]
Activation = (ReLU, ReLU6, Tanh, Sigmoid, HardSigmoid, GELU, Elementwise)


def layer_types() -> dict[str, type]:
    """All layer types by their name in workload files."""
    return {type_name(kind): kind for kind in get_args(Layer)}


def has_two_biases(layer: Any) -> bool:
    """Whether a recurrent layer has a bias for each product, one row below the other."""
    return isinstance(layer, GRU) and layer.linear_before_reset


def default_of(part: msgspec.Struct, field: Any) -> Any:
    """The value of a field that is left out, where it may follow from others: a layer's kernel has it.

    Args:
        field: one of ``msgspec.structs.fields(part)``.
    """
    if isinstance(part, _Windowed) and field.default == ():
        return _defaults_of_windows(part)[field.name]
    return field.default


def type_name(part: Any) -> str:
    """The type name of a layer or an optimizer in workload files, such as ``max_pool``."""
    return str(part.__struct_config__.tag)
