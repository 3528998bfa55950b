"""The hooks that dlb-tf answers. TensorFlow is imported inside them, never when this is loaded."""

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

NAME = "tf"
STRATEGY = "multi_worker_mirrored"

LAYERS = {
    "conv": "native, in NHWC; pads that are not TensorFlow's SAME by a pad layer before it; as many "
    "groups as channels by DepthwiseConv2D; other groups composed by split, Conv2D each and concat; "
    "stride with dilation, which Keras refuses, composed by a Conv2D of stride 1 and a slice; stride "
    "of a 1 x 1 kernel, whose gradient corrupts memory, by a slice and a Conv2D of stride 1",
    "linear": "native; after a flatten its weights lie in NHWC order; tied, a layer that multiplies "
    "by the embedding's weight",
    "batch_norm": "native",
    "layer_norm": "native",
    "lrn": "native in float32; composed in float64, which tf.nn.local_response_normalization lacks",
    "max_pool": "native, in NHWC; pads that are not TensorFlow's SAME by a pad before it",
    "average_pool": "native, in NHWC; pads that are not TensorFlow's SAME by a pad layer before it, "
    "and a factor after it where a window's count is not the whole kernel",
    "global_average_pool": "native",
    "relu": "native",
    "relu6": "native",
    "tanh": "native",
    "sigmoid": "native",
    "hard_sigmoid": "native",
    "gelu": "native in float32; composed in float64, for tf.nn.gelu keeps its constants in float32",
    "dropout": "native",
    "add": "native",
    "mul": "native",
    "concat": "native",
    "flatten": "native, in NHWC order where linear layers follow; else after a permute to NCHW",
    "reshape": "native; of feature maps after a permute to NCHW, but where channels stay and a "
    "transpose follows",
    "transpose": "native",
    "reduce_mean": "native",
    "select": "native: a slice",
    "pad": "native: tf.pad",
    "slice": "native",
    "gather": "native: tf.gather",
    "embedding": "native",
    "position_embedding": "native: a weight that is added",
    "lstm": "native",
    "attention": "native, with its scale in the dtype of the model, which Keras keeps in float32",
}

OPTIMIZERS = {
    "sgd": "native; Keras' velocity is scaled by the learning rate, so it is rescaled when that "
    "changes; coupled weight decay is added to the gradients",
    "adam": "native, with an epsilon that follows the step so that it comes after the bias "
    "correction, and an embedding's gradient summed by row, which Keras forgets before it squares; "
    "coupled weight decay is added to the gradients",
}

#: The first of each is the default.
VARIANTS = {"compile": ("graph", "xla", "no")}


@hookimpl
def dlb_describe() -> AdapterDescription:
    return AdapterDescription(
        name=NAME,
        title="TensorFlow",
        distribution="dlb-tf",
        framework=("tensorflow", "tensorflow-cpu"),
        contract=(1, 4),
        layers=LAYERS,
        optimizers=OPTIMIZERS,
        devices=("cpu", "cuda"),
        exporter="tf2onnx.convert.from_function",
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
            name=STRATEGY,
            title="MultiWorkerMirroredStrategy",
            frameworks=(NAME,),
            synchronous=True,
            backends=("ring", "nccl"),
            devices=("cpu", "cuda"),
        ),
    )


@hookimpl
def dlb_start(framework: str, request: StartRequest) -> FrameworkFacts | None:
    if framework != NAME:
        return None
    from dlb_tf.framework import start

    return start(request)


@hookimpl
def dlb_build_model(framework: str, request: BuildRequest) -> TrainableModel | None:
    if framework != NAME:
        return None
    from dlb_tf.model import TFModel

    return TFModel(request, **dlb_describe().choices(request.variant))


@hookimpl
def dlb_load_data(framework: str, request: LoadRequest) -> Batches | None:
    if framework != NAME:
        return None
    from dlb_tf.data import load

    return load(request)


@hookimpl
def dlb_clock(framework: str, device: str) -> Clock | None:
    if framework != NAME:
        return None
    from dlb_tf.framework import clock

    return clock(device)


@hookimpl
def dlb_export_onnx(framework: str, model: TrainableModel, path: Path) -> str | None:
    if framework != NAME:
        return None
    from dlb_tf.export import export

    return export(model, path)


@hookimpl
def dlb_adopt_model(framework: str, request: AdoptRequest) -> AdoptedModel | None:
    if framework != NAME:
        return None
    from dlb_tf.adopt import AdoptedKeras

    return AdoptedKeras(request)


@hookimpl
def dlb_plan(framework: str, request: PlanRequest) -> LaunchPlan | None:
    if framework != NAME or request.strategy != STRATEGY:
        return None
    from dlb_tf.launch import plan

    return plan(request)


@hookimpl
def dlb_join(framework: str, strategy: str, rank: int, workers: int) -> StrategySession | None:
    if framework != NAME or strategy != STRATEGY:
        return None
    from dlb_tf.strategy import MultiWorkerSession

    return MultiWorkerSession(rank, workers)
