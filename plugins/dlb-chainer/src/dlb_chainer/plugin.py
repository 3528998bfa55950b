"""The hooks that dlb-chainer answers. Chainer is imported inside them, never when this is loaded."""

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

NAME = "chainer"

LAYERS = {
    "conv": "native; uneven pads by F.pad before it",
    "linear": "native, of rows where there is a time axis; tied, F.linear on the embedding's parameter",
    "batch_norm": "native; the running variance is set right to ONNX's biased one after each step",
    "layer_norm": "native, of rows where there is a time axis",
    "lrn": "native; alpha is divided by the size before it is given",
    "max_pool": "native; uneven pads, and windows past the end, by F.pad before it",
    "average_pool": "native; with uneven pads or sizes rounded up F.pad, average_pooling_2d and a "
    "constant that mends the count",
    "global_average_pool": "native: average_pooling_2d over the whole map",
    "relu": "native",
    "relu6": "native",
    "tanh": "native",
    "sigmoid": "native",
    "hard_sigmoid": "composed of F.clipped_relu, since F.hard_sigmoid has a slope of 0.2",
    "gelu": "composed of F.erf or F.tanh, since Chainer has none",
    "dropout": "native",
    "add": "native",
    "mul": "native; a number for each channel is broadcast first",
    "concat": "native",
    "flatten": "native: F.reshape",
    "reshape": "native",
    "transpose": "native",
    "reduce_mean": "native",
    "select": "native: F.get_item",
    "pad": "native",
    "slice": "native: F.get_item",
    "gather": "native: F.get_item",
    "embedding": "native",
    "position_embedding": "native: a parameter that is added",
    "lstm": "native: StatelessLSTM's links and F.lstm step by step, the upward product taken once",
    "attention": "composed of two linear links, one of them for queries, keys and values, matmul and "
    "softmax",
}

OPTIMIZERS = {
    "sgd": "native: SGD, MomentumSGD, WeightDecay; the velocity, which Chainer keeps times the "
    "learning rate, is scaled when the rate changes; Nesterov by an update rule of our own, since "
    "NesterovAG puts the new velocity where its formula has the old",
    "adam": "native; its epsilon is set before each update to what it is after the bias correction",
}


@hookimpl
def dlb_describe() -> AdapterDescription:
    return AdapterDescription(
        name=NAME,
        title="Chainer",
        distribution="dlb-chainer",
        framework=("chainer",),
        contract=(1, 4),
        layers=LAYERS,
        optimizers=OPTIMIZERS,
        devices=("cpu", "cuda"),
        exporter="onnx_chainer.export",
        features=(
            "clip_norm",
            "label_smoothing",
            "tied_weights",
            "augmentation",
            "masks",
            "user_models",
            "export",
        ),
    )


@hookimpl
def dlb_strategies() -> Sequence[StrategyDescription]:
    return (
        StrategyDescription(
            name="chainermn",
            title="ChainerMN",
            frameworks=(NAME,),
            synchronous=True,
            backends=("mpi",),
        ),
    )


@hookimpl
def dlb_start(framework: str, request: StartRequest) -> FrameworkFacts | None:
    if framework != NAME:
        return None
    from dlb_chainer.framework import start

    return start(request)


@hookimpl
def dlb_build_model(framework: str, request: BuildRequest) -> TrainableModel | None:
    if framework != NAME:
        return None
    from dlb_chainer.model import ChainerModel

    return ChainerModel(request, **dlb_describe().choices(request.variant))


@hookimpl
def dlb_load_data(framework: str, request: LoadRequest) -> Batches | None:
    if framework != NAME:
        return None
    from dlb_chainer.data import load

    return load(request)


@hookimpl
def dlb_clock(framework: str, device: str) -> Clock | None:
    if framework != NAME:
        return None
    from dlb_chainer.framework import clock

    return clock(device)


@hookimpl
def dlb_export_onnx(framework: str, model: TrainableModel, path: Path) -> str | None:
    if framework != NAME:
        return None
    from dlb_chainer.export import export

    return export(model, path)


@hookimpl
def dlb_adopt_model(framework: str, request: AdoptRequest) -> AdoptedModel | None:
    if framework != NAME:
        return None
    from dlb_chainer.adopt import AdoptedLink

    return AdoptedLink(request)


@hookimpl
def dlb_plan(framework: str, request: PlanRequest) -> LaunchPlan | None:
    if framework != NAME or request.strategy != "chainermn":
        return None
    from dlb_chainer.launch import plan

    return plan(request)


@hookimpl
def dlb_join(framework: str, strategy: str, rank: int, workers: int) -> StrategySession | None:
    if framework != NAME or strategy != "chainermn":
        return None
    from dlb_chainer.strategy import ChainerMNSession

    return ChainerMNSession(rank, workers)
