"""The hooks that dlb-torch answers. torch is imported inside them, never when this is loaded."""

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

NAME = "torch"

LAYERS = {
    "conv": "native",
    "linear": "native; tied, with the embedding's parameter",
    "batch_norm": "native; the running variance is set right to ONNX's biased one after each step",
    "layer_norm": "native",
    "lrn": "native",
    "max_pool": "native; uneven pads and windows left out by a pad layer before it",
    "average_pool": "native; uneven pads and windows left out by a pad layer before it, and a factor",
    "global_average_pool": "native",
    "relu": "native",
    "relu6": "native",
    "tanh": "native",
    "sigmoid": "native",
    "hard_sigmoid": "native in float32; composed in float64, for its gradient has the slope in float32",
    "gelu": "native",
    "dropout": "native",
    "add": "native",
    "mul": "native",
    "concat": "native",
    "flatten": "native",
    "reshape": "native",
    "transpose": "native",
    "reduce_mean": "native",
    "select": "native",
    "pad": "native",
    "slice": "native",
    "gather": "native",
    "embedding": "native",
    "position_embedding": "native: a parameter that is added",
    "lstm": "native; the second of its two biases stays zero",
    "attention": "native: Linear, and scaled_dot_product_attention between",
}

#: The first of each is the default.
VARIANTS = {
    "compile": ("no", "inductor"),
    "layout": ("contiguous", "channels_last"),
}


@hookimpl
def dlb_describe() -> AdapterDescription:
    return AdapterDescription(
        name=NAME,
        title="PyTorch",
        distribution="dlb-torch",
        framework=("torch",),
        contract=(1, 4),
        layers=LAYERS,
        optimizers={"sgd": "native", "adam": "native"},
        devices=("cpu", "cuda"),
        exporter="torch.onnx.export(dynamo=True)",
        features=(
            "clip_norm",
            "label_smoothing",
            "tied_weights",
            "augmentation",
            "masks",
            "user_models",
            "export",
        ),
        variants=VARIANTS,
    )


@hookimpl
def dlb_strategies() -> Sequence[StrategyDescription]:
    return (
        StrategyDescription(
            name="ddp",
            title="DistributedDataParallel",
            frameworks=(NAME,),
            synchronous=True,
            backends=("gloo", "nccl"),
            devices=("cpu", "cuda"),
        ),
    )


@hookimpl
def dlb_start(framework: str, request: StartRequest) -> FrameworkFacts | None:
    if framework != NAME:
        return None
    from dlb_torch.framework import start

    return start(request)


@hookimpl
def dlb_build_model(framework: str, request: BuildRequest) -> TrainableModel | None:
    if framework != NAME:
        return None
    from dlb_torch.model import TorchModel

    return TorchModel(request, **dlb_describe().choices(request.variant))


@hookimpl
def dlb_load_data(framework: str, request: LoadRequest) -> Batches | None:
    if framework != NAME:
        return None
    from dlb_torch.data import load

    return load(request)


@hookimpl
def dlb_clock(framework: str, device: str) -> Clock | None:
    if framework != NAME:
        return None
    from dlb_torch.framework import clock

    return clock(device)


@hookimpl
def dlb_export_onnx(framework: str, model: TrainableModel, path: Path) -> str | None:
    if framework != NAME:
        return None
    from dlb_torch.export import export

    return export(model, path)


@hookimpl
def dlb_adopt_model(framework: str, request: AdoptRequest) -> AdoptedModel | None:
    if framework != NAME:
        return None
    from dlb_torch.adopt import AdoptedModule

    return AdoptedModule(request)


@hookimpl
def dlb_plan(framework: str, request: PlanRequest) -> LaunchPlan | None:
    if framework != NAME or request.strategy != "ddp":
        return None
    from dlb_torch.launch import plan

    return plan(request)


@hookimpl
def dlb_join(framework: str, strategy: str, rank: int, workers: int) -> StrategySession | None:
    if framework != NAME or strategy != "ddp":
        return None
    from dlb_torch.strategy import DDPSession

    return DDPSession(rank, workers)
