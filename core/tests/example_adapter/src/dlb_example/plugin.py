"""The hooks. What they need is imported inside them: this module is loaded at every command."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dlb import hookimpl
from dlb.contract import (
    CONTRACT,
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
    Process,
    StartRequest,
    StrategyDescription,
    StrategySession,
    TrainableModel,
)
from dlb.errors import UnsupportedError

NAME = "example"
STRATEGY = "example_sync"


@hookimpl
def dlb_describe() -> AdapterDescription:
    return AdapterDescription(
        name=NAME,
        title="NumPy",
        distribution="dlb-example",
        framework=("numpy",),
        contract=CONTRACT,
        layers={
            "linear": "composed: matmul and add",
            "relu": "native",
            "tanh": "native",
            "dropout": "composed: a mask of NumPy's generator, and a product",
            "flatten": "native: reshape",
        },
        optimizers={"sgd": "composed"},
        exporter="onnx.helper",
        features=(
            "clip_norm",
            "label_smoothing",
            "tied_weights",
            "augmentation",
            "masks",
            "user_models",
            "export",
        ),
        variants={"layout": ("rows", "columns")},
    )


@hookimpl
def dlb_strategies() -> Sequence[StrategyDescription]:
    return (
        StrategyDescription(
            name=STRATEGY,
            title="gradients averaged by rank 0 over TCP",
            frameworks=(NAME,),
            synchronous=True,
            backends=("tcp",),
        ),
    )


@hookimpl
def dlb_start(framework: str, request: StartRequest) -> FrameworkFacts | None:
    if framework != NAME:
        return None
    if request.device != "cpu":
        raise UnsupportedError(f"NumPy has no device '{request.device}'; choose --device cpu")
    import numpy as np
    import threadpoolctl

    threadpoolctl.threadpool_limits(request.threads)
    pools = threadpoolctl.threadpool_info()
    return FrameworkFacts(
        version=np.__version__,
        threads=max((pool["num_threads"] for pool in pools), default=1),
        device="cpu",
        build={pool["internal_api"]: str(pool["version"]) for pool in pools},
    )


@hookimpl
def dlb_build_model(framework: str, request: BuildRequest) -> TrainableModel | None:
    if framework != NAME:
        return None
    from dlb_example.model import ExampleModel

    return ExampleModel(request, **dlb_describe().choices(request.variant))


@hookimpl
def dlb_load_data(framework: str, request: LoadRequest) -> Batches | None:
    if framework != NAME:
        return None
    from dlb_example.data import ahead, at_once

    return at_once(request) if request.via == "memory" else ahead(request)


@hookimpl
def dlb_clock(framework: str, device: str) -> Clock | None:
    # NumPy returns when it is done, so there is nothing to wait for.
    return Clock() if framework == NAME else None


@hookimpl
def dlb_export_onnx(framework: str, model: TrainableModel, path: Path) -> str | None:
    if framework != NAME:
        return None
    from dlb_example.export import export

    return export(model, path)


@hookimpl
def dlb_adopt_model(framework: str, request: AdoptRequest) -> AdoptedModel | None:
    if framework != NAME:
        return None
    from dlb_example.adopt import AdoptedNet

    return AdoptedNet(request)


@hookimpl
def dlb_plan(framework: str, request: PlanRequest) -> LaunchPlan | None:
    if framework != NAME or request.strategy != STRATEGY:
        return None
    meeting = {"DLB_EXAMPLE_MEETING": f"{request.host}:{request.ports[0]}"}
    return LaunchPlan(tuple(Process("worker", rank, meeting) for rank in range(request.workers)))


@hookimpl
def dlb_join(framework: str, strategy: str, rank: int, workers: int) -> StrategySession | None:
    if framework != NAME or strategy != STRATEGY:
        return None
    from dlb_example.strategy import Averaging

    return Averaging(rank, workers)
