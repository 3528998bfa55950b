"""dlb-torch's adapter. Its methods import torch; loading it does not."""

from __future__ import annotations

from dataclasses import replace

from dlb_torch.registry import LAYERS
from dlb_worker.adapter import Adapter, Strategy, lazy_method
from dlb_worker.contract import ASYNCHRONOUS_CASES, CASES, LaunchPlan, PlanRequest, Process

#: Steps of local SGD between two means of the parameters.
PERIOD = 4


class DDP(Strategy):
    """DistributedDataParallel: https://docs.pytorch.org/docs/stable/notes/ddp.html."""

    name = "ddp"
    title = "DistributedDataParallel"
    frameworks = ("torch",)
    synchronous = True
    backends: tuple[str, ...] = ("gloo", "nccl")
    devices: tuple[str, ...] = ("cpu", "cuda")
    cases = tuple(case for case in CASES if case != "global_statistics")
    join = lazy_method("dlb_torch.strategy", "DDPSession")

    def plan(self, request: PlanRequest) -> LaunchPlan:
        """One process for each worker; they meet at a port of rank 0."""
        meeting = {
            "MASTER_ADDR": request.host,
            "MASTER_PORT": str(request.ports[0]),
            "DLB_TORCH_BACKEND": "nccl" if request.device == "cuda" else "gloo",
        }
        own = [
            {"LOCAL_RANK": str(rank), "DLB_TORCH_ADDRESS": request.address(rank)}
            for rank in range(request.workers)
        ]
        return LaunchPlan(
            tuple(Process("worker", rank, {**meeting, **each}) for rank, each in enumerate(own))
        )


class FSDP(DDP):
    """fully_shard: https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html."""

    name = "fsdp"
    title = "FSDP2, fully_shard"
    parameters = "sharded"
    join = lazy_method("dlb_torch.strategy", "FSDPSession")


class TensorParallel(DDP):
    """parallelize_module: https://docs.pytorch.org/docs/stable/distributed.tensor.parallel.html."""

    name = "tensor_parallel"
    title = "tensor parallel, ColwiseParallel and RowwiseParallel"
    parallelism = "model"
    parameters = "sharded"
    # Every worker normalises whole batches.
    cases = tuple(case for case in CASES if case != "local_statistics")
    join = lazy_method("dlb_torch.strategy", "TensorParallelSession")

    def plan(self, request: PlanRequest) -> LaunchPlan:
        """As DDP's, where all workers have the whole batch."""
        return replace(super().plan(request), shares=1)


class Pipeline(TensorParallel):
    """PipelineStage and its schedules: https://docs.pytorch.org/docs/stable/distributed.pipelining.html."""

    name = "pipeline"
    title = "pipeline parallel, ScheduleGPipe and Schedule1F1B"
    parallelism = "pipeline"
    backends = ("gloo",)
    devices = ("cpu",)
    # Every worker has whole batches, but normalises micro-batches.
    cases = DDP.cases
    join = lazy_method("dlb_torch.strategy", "PipelineSession")


class LocalSGD(DDP):
    """Workers that train alone, and average their parameters now and then."""

    name = "local_sgd"
    title = "post-local SGD, PeriodicModelAverager"
    synchronous = False
    averages_every = PERIOD
    # Others need workers that share their gradients, or weigh them by their samples.
    cases = tuple(case for case in DDP.cases if case not in ("unequal_shares", "accumulation"))
    join = lazy_method("dlb_torch.strategy", "LocalSGDSession")


class ParameterServer(DDP):
    """An asynchronous parameter server over RPC: https://docs.pytorch.org/docs/stable/rpc.html."""

    name = "parameter_server"
    title = "parameter server over RPC"
    synchronous, asynchronous = False, True
    parameters = "server"
    backends = ("tensorpipe",)
    devices = ("cpu",)
    # Others need workers that share their gradients, weigh them by their samples, or tell of one step at once.
    cases = (
        *(case for case in LocalSGD.cases if case != "local_statistics"),
        *ASYNCHRONOUS_CASES,
    )
    join = lazy_method("dlb_torch.strategy", "ParameterServerSession")

    def plan(self, request: PlanRequest) -> LaunchPlan:
        """As DistributedDataParallel's, and the server, which has the last rank."""
        workers = super().plan(request).processes
        meeting = dict(workers[0].environment, DLB_TORCH_WORKERS=str(request.workers))
        return LaunchPlan((*workers, Process("server", 0, meeting)))

    def serve(self, role: str, rank: int) -> None:
        from dlb_torch.strategy import serve_parameters

        serve_parameters()


class TorchAdapter(Adapter):
    """PyTorch."""

    name = "torch"
    title = "PyTorch"
    distribution = "dlb-torch"
    framework = ("torch",)
    contract = (2, 1)
    layers = LAYERS
    optimizers = {
        "sgd": "native",
        "adam": "native",
        "adamw": "native",
        "rmsprop": "native with epsilon outside; inside, composed of tensor operations",
        "adagrad": "native with epsilon outside; inside, composed of tensor operations",
        "adadelta": "native",
        "adamax": "native with epsilon inside; outside, composed of tensor operations",
    }
    losses = {
        "softmax_cross_entropy": "native; without one label, its sum over the number of all; "
        "with class weights, weighted by label after it",
        "binary_cross_entropy": "native",
        "squared_error": "native",
        "absolute_error": "native",
        "huber": "native",
        "ctc": "native, its sum over samples; torch's own mean is divided by labels first",
    }
    features = (
        "accumulate",
        "amsgrad",
        "augmentation",
        "class_weights",
        "clip_norm",
        "clip_value",
        "clip_variable_norm",
        "dilated_max_pool",
        "export",
        "export_user_models",
        "ignore_index",
        "label_smoothing",
        "losses_of_maps",
        "masks",
        "repeatable_dropout",
        "shared_layers",
        "three_axes",
        "tied_weights",
        "unequal_shares",
        "user_models",
        "weight_decay_on",
    )
    devices = ("cpu", "cuda")
    exporter = "torch.onnx.export(dynamo=True)"
    variants = {
        "compile": ("no", "inductor"),
        "layout": ("contiguous", "channels_last"),
        "precision": ("full", "bfloat16"),
    }
    strategies = (DDP(), FSDP(), TensorParallel(), Pipeline(), LocalSGD(), ParameterServer())

    start = lazy_method("dlb_torch.framework", "start")
    clock = lazy_method("dlb_torch.framework", "clock")
    peak_work = lazy_method("dlb_torch.framework", "peak_work")
    build_model = lazy_method("dlb_torch.model", "TorchModel")
    load_data = lazy_method("dlb_torch.data", "load")
    export_onnx = lazy_method("dlb_torch.export", "export")
    load_user_model = lazy_method("dlb_torch.user_model", "UserModule")


adapter = TorchAdapter()
