"""dlb-mxnet's adapter. Its methods import mxnet; loading it does not."""

from __future__ import annotations

import os

from dlb_mxnet.registry import LAYERS
from dlb_worker.adapter import Adapter, Strategy, lazy_method
from dlb_worker.contract import ASYNCHRONOUS_CASES, CASES, LaunchPlan, PlanRequest, Process

#: MXNet 1.9's server never initialises its ``multi_precision_``. Where its memory held anything but
#: zero, it sums float64 gradients in float32, or looks for them in a wrong place. glibc can fill new
#: memory: with zeros, if perturb is 255, but only without the thread cache.
ZEROED_MEMORY = {"GLIBC_TUNABLES": "glibc.malloc.perturb=255:glibc.malloc.tcache_count=0"}


class DistSync(Strategy):
    """The synchronous KVStore: https://mxnet.apache.org/api/faq/distributed_training."""

    name = "dist_sync"
    title = "KVStore dist_sync"
    frameworks = ("mxnet",)
    synchronous = True
    backends = ("ps-lite",)
    devices = ("cpu", "cuda")
    cases = tuple(case for case in CASES if case != "global_statistics")
    join = lazy_method("dlb_mxnet.strategy", "KVStoreSession")

    def plan(self, request: PlanRequest) -> LaunchPlan:
        """A scheduler that all meet at, a server that sums the gradients, and the workers."""
        meeting = {
            "DMLC_PS_ROOT_URI": request.host,
            "DMLC_PS_ROOT_PORT": str(request.ports[0]),
            "DMLC_NUM_SERVER": "1",
            "DMLC_NUM_WORKER": str(request.workers),
        }
        served = {**ZEROED_MEMORY, "DMLC_NODE_HOST": request.host}
        roles = [
            ("worker", rank, {"DLB_MXNET_GPU": str(rank), "DMLC_NODE_HOST": request.address(rank)})
            for rank in range(request.workers)
        ]
        roles += [("scheduler", 0, served), ("server", 0, served)]
        return LaunchPlan(
            tuple(
                Process(role, rank, {**meeting, "DMLC_ROLE": role, "PORT": str(port), **own})
                for (role, rank, own), port in zip(roles, request.ports[1:])
            )
        )

    def serve(self, role: str, rank: int) -> None:
        """Serve until all workers have left.

        MXNet serves as it is imported in a process of such a role, before it has all of its names. An
        optimizer of another package finds them only if MXNet is imported as by a worker.
        """
        os.environ["DMLC_ROLE"] = "worker"
        from mxnet import kvstore

        os.environ["DMLC_ROLE"] = role
        kvstore.KVStoreServer(kvstore.create("dist")).run()


class DistAsync(DistSync):
    """The asynchronous KVStore, whose server takes a step at each worker's gradients."""

    name = "dist_async"
    title = "KVStore dist_async"
    synchronous, asynchronous = False, True
    parameters = "server"
    # Others need workers that share their gradients, weigh them by their samples, or tell of one step at once.
    cases = tuple(
        case
        for case in (*CASES, *ASYNCHRONOUS_CASES)
        if case not in ("unequal_shares", "accumulation", "local_statistics", "global_statistics")
    )
    join = lazy_method("dlb_mxnet.strategy", "AsyncSession")


class Local(Strategy):
    """The KVStore of several devices of one process, which adds their gradients on the processor."""

    name = "local"
    title = "KVStore local, in one process"
    frameworks = ("mxnet",)
    synchronous = True
    cases = DistSync.cases
    join = lazy_method("dlb_mxnet.strategy", "LocalSession")

    def plan(self, request: PlanRequest) -> LaunchPlan:
        """One process, with a context for each replica."""
        return LaunchPlan((Process("worker", 0),))


class Device(Local):
    """The same, which adds them on the devices."""

    name = "device"
    title = "KVStore device, in one process"
    join = lazy_method("dlb_mxnet.strategy", "DeviceSession")


class MXNetAdapter(Adapter):
    """Apache MXNet."""

    name = "mxnet"
    title = "Apache MXNet"
    distribution = "dlb-mxnet"
    framework = ("mxnet", "mxnet-cu112", "mxnet-cu117")
    contract = (2, 1)
    layers = LAYERS
    optimizers = {
        "sgd": "native: the fused operators of SGD and NAG, whose velocity is -lr times the "
        "workload's and is scaled when the rate changes; in float64 composed of array operators, "
        "for the fused ones keep the rate and the momentum in float32",
        "adam": "native: the fused operator, given epsilon * sqrt(1 - beta2 ** t) for epsilon; in "
        "float64 and with amsgrad composed of array operators, for the fused one keeps its scalars in "
        "float32, and no largest moment",
        "adamw": "native: the fused operator of mxnet.contrib, as adam; its decay is given times the rate",
        "rmsprop": "native with epsilon inside and no momentum: the fused operator, corrected for rho in "
        "float32; otherwise and in float64 composed of array operators",
        "adagrad": "composed of array operators, as MXNet's own, which decays otherwise",
        "adadelta": "composed of array operators, as MXNet's own, which has no rate and decays otherwise",
        "adamax": "composed of array operators, as MXNet's own, which has no epsilon",
    }
    losses = {
        "softmax_cross_entropy": "native; "
        "with smoothed labels, class weights or an ignored label, composed of array operators",
        "binary_cross_entropy": "composed of array operators: gluon's has another gradient where a logit is 0",
        "squared_error": "native, times 2",
        "absolute_error": "native",
        "huber": "native, times delta",
        "ctc": "native in float32 with the first or the last class as blank; else composed of the "
        "forward variables",
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
    exporter = "mxnet.onnx.export_model"
    deviations = (
        "In float32 on a CPU, oneDNN's log-softmax is up to 4e-6 wrong, ten times its rounding, "
        "and so are the loss and the gradients.",
    )
    variants = {"compile": ("hybrid", "no")}
    strategies = (DistSync(), DistAsync(), Local(), Device())

    start = lazy_method("dlb_mxnet.framework", "start")
    clock = lazy_method("dlb_mxnet.framework", "clock")
    peak_work = lazy_method("dlb_mxnet.framework", "peak_work")
    build_model = lazy_method("dlb_mxnet.model", "MXNetModel")
    load_data = lazy_method("dlb_mxnet.data", "load")
    export_onnx = lazy_method("dlb_mxnet.export", "export")
    load_user_model = lazy_method("dlb_mxnet.user_model", "UserBlock")


adapter = MXNetAdapter()
