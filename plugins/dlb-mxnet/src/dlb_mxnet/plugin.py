"""The hooks that dlb-mxnet answers. mxnet is imported inside them, never when this is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dlb import hookimpl
from dlb.contract import (
    AdapterDescription,
    AdoptedModel,
    AdoptRequest,
    Batches,
    BuildRequest,
    Clock,
    FrameworkFacts,
    LaunchPlan,
    LoadRequest,
    PlanRequest,
    StartRequest,
    StrategyDescription,
    StrategySession,
    TrainableModel,
)

NAME = "mxnet"

LAYERS = {
    "conv": "native; uneven pads by a pad operator before it",
    "linear": "native; tied, with the embedding's parameter",
    "batch_norm": "native; in float64 the running statistics are moved by array operators, for "
    "the operator keeps its momentum in float32",
    "layer_norm": "native in float32; composed in float64, for the operator keeps its epsilon in "
    "float32",
    "lrn": "composed of square, average pooling and power, for the operator refuses "
    "float64, and its float32 gradient is wrong before a convolution of 8 channels",
    "max_pool": "native; uneven pads, and windows that begin in the padding left out, by a pad "
    "operator before it",
    "average_pool": "native; uneven pads, windows left out, and padding that counts with ceil_mode by "
    "a pad operator before it, and a multiplication after it where padding is not counted",
    "global_average_pool": "native",
    "relu": "native",
    "relu6": "composed of relu and minimum, for the gradient of clip at a bound is 1",
    "tanh": "native",
    "sigmoid": "native",
    "hard_sigmoid": "native in float32; composed in float64, for the operator keeps its slope in float32",
    "gelu": "native in float32; composed in float64, for the operator keeps its constants in float32; "
    "by tanh composed, which MXNet has not",
    "dropout": "native; in float64 the operator's mask, scaled by array operators, for the "
    "operator scales in float32",
    "add": "native",
    "mul": "native",
    "concat": "native; of maps, in MXNet's own layout where channels are not in sixteens",
    "flatten": "native",
    "reshape": "native; to a map, in MXNet's own layout",
    "transpose": "native",
    "reduce_mean": "native",
    "select": "native: slice_axis and squeeze",
    "pad": "native; with axes of size 1 before those to pad where they are none of the operator's, "
    "which pads from the third axis on",
    "slice": "native; of maps, in MXNet's own layout",
    "gather": "native: take",
    "embedding": "native",
    "position_embedding": "native: a parameter that is added",
    "lstm": "native; the second of its two biases stays zero",
    "attention": "composed of dense blocks, batch_dot and softmax",
}

OPTIMIZERS = {
    "sgd": "native: the fused operators of SGD and NAG, whose velocity is -lr times the "
    "workload's and is scaled when the rate changes; in float64 composed of array operators, for "
    "the fused ones keep the rate and the momentum in float32",
    "adam": "native: the fused operator, given epsilon * sqrt(1 - beta2 ** t) for epsilon; in "
    "float64 composed of array operators, for the fused one keeps its scalars in float32",
}

DEVIATIONS = (
    "In float32 on a CPU, oneDNN's log-softmax is up to 4e-6 wrong, ten times its rounding, and so "
    "are the loss and the gradients.",
)

#: The first of each is the default.
VARIANTS = {"compile": ("hybrid", "no")}


@hookimpl
def dlb_describe() -> AdapterDescription:
    return AdapterDescription(
        name=NAME,
        title="Apache MXNet",
        distribution="dlb-mxnet",
        framework=("mxnet", "mxnet-cu112", "mxnet-cu117"),
        contract=(1, 4),
        layers=LAYERS,
        optimizers=OPTIMIZERS,
        devices=("cpu", "cuda"),
        exporter="mxnet.onnx.export_model",
        features=(
            "clip_norm",
            "label_smoothing",
            "tied_weights",
            "augmentation",
            "masks",
            "user_models",
            "export",
        ),
        deviations=DEVIATIONS,
        variants=VARIANTS,
    )


@hookimpl
def dlb_strategies() -> Sequence[StrategyDescription]:
    return (
        StrategyDescription(
            name="dist_sync",
            title="KVStore dist_sync",
            frameworks=(NAME,),
            synchronous=True,
            parameters="replicated",
            backends=("ps-lite",),
            devices=("cpu", "cuda"),
        ),
    )


@hookimpl
def dlb_start(framework: str, request: StartRequest) -> FrameworkFacts | None:
    if framework != NAME:
        return None
    from dlb_mxnet.framework import start

    return start(request)


@hookimpl
def dlb_build_model(framework: str, request: BuildRequest) -> TrainableModel | None:
    if framework != NAME:
        return None
    from dlb_mxnet.model import MXNetModel

    return MXNetModel(request, **dlb_describe().choices(request.variant))


@hookimpl
def dlb_load_data(framework: str, request: LoadRequest) -> Batches | None:
    if framework != NAME:
        return None
    from dlb_mxnet.data import load

    return load(request)


@hookimpl
def dlb_clock(framework: str, device: str) -> Clock | None:
    if framework != NAME:
        return None
    from dlb_mxnet.framework import clock

    return clock(device)


@hookimpl
def dlb_export_onnx(framework: str, model: TrainableModel, path: Path) -> str | None:
    if framework != NAME:
        return None
    from dlb_mxnet.export import export

    return export(model, path)


@hookimpl
def dlb_adopt_model(framework: str, request: AdoptRequest) -> AdoptedModel | None:
    if framework != NAME:
        return None
    from dlb_mxnet.adopt import AdoptedBlock

    return AdoptedBlock(request)


@hookimpl
def dlb_plan(framework: str, request: PlanRequest) -> LaunchPlan | None:
    if framework != NAME or request.strategy != "dist_sync":
        return None
    from dlb_mxnet.launch import plan

    return plan(request)


@hookimpl
def dlb_join(framework: str, strategy: str, rank: int, workers: int) -> StrategySession | None:
    if framework != NAME or strategy != "dist_sync":
        return None
    from dlb_mxnet.strategy import KVStoreSession

    return KVStoreSession(rank, workers)


@hookimpl
def dlb_serve(framework: str, strategy: str, role: str, rank: int) -> bool | None:
    if framework != NAME or strategy != "dist_sync":
        return None
    from dlb_mxnet.launch import serve

    return serve()
