"""dlb-tf's adapter. Its methods import TensorFlow; loading it does not."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from dlb_tf.registry import LAYERS
from dlb_worker.adapter import Adapter, Strategy, lazy_method
from dlb_worker.contract import ASYNCHRONOUS_CASES, CASES, LaunchPlan, PlanRequest, Process


def member(cluster: Mapping[str, Sequence[str]], kind: str, index: int) -> dict[str, str]:
    """Variables of a process of TensorFlow's cluster, which has addresses by kind."""
    task = {"type": kind, "index": index}
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": task})}


class MultiWorkerMirrored(Strategy):
    """MultiWorkerMirroredStrategy; see :mod:`dlb_tf.strategy`."""

    name = "multi_worker_mirrored"
    title = "MultiWorkerMirroredStrategy"
    frameworks = ("tf",)
    synchronous = True
    backends = ("ring", "nccl")
    devices = ("cpu", "cuda")
    cases = tuple(case for case in CASES if case != "global_statistics")
    join = lazy_method("dlb_tf.strategy", "MultiWorkerSession")

    def plan(self, request: PlanRequest) -> LaunchPlan:
        """One process for each worker, with a port of its own that all the others know."""
        ports = request.ports[: request.workers]
        workers = [f"{request.address(rank)}:{port}" for rank, port in enumerate(ports)]

        def environment(rank: int) -> dict[str, str]:
            return {**member({"worker": workers}, "worker", rank), "DLB_TF_RANK": str(rank)}

        ranks = range(request.workers)
        return LaunchPlan(tuple(Process("worker", rank, environment(rank)) for rank in ranks))


class Mirrored(Strategy):
    """MirroredStrategy; see :mod:`dlb_tf.strategy`."""

    name = "mirrored"
    title = "MirroredStrategy, in one process"
    frameworks = ("tf",)
    synchronous = True
    cases = tuple(case for case in CASES if case != "local_statistics")
    join = lazy_method("dlb_tf.strategy", "MirroredSession")

    def plan(self, request: PlanRequest) -> LaunchPlan:
        """One process, which divides its processor into a logical device for each replica."""
        return LaunchPlan((Process("worker", 0, {"DLB_TF_REPLICAS": str(request.workers)}),))


class CentralStorage(Mirrored):
    """CentralStorageStrategy; see :mod:`dlb_tf.strategy`."""

    name = "central_storage"
    title = "CentralStorageStrategy, in one process"
    parameters = "server"
    cases = tuple(case for case in Mirrored.cases if case != "global_statistics")
    join = lazy_method("dlb_tf.strategy", "CentralStorageSession")


class ParameterServer(Strategy):
    """ParameterServerStrategy; see :mod:`dlb_tf.parameter_server`."""

    name = "parameter_server"
    title = "ParameterServerStrategy, with a coordinator"
    frameworks = ("tf",)
    synchronous, asynchronous, pulls_first = False, True, True
    parameters = "server"
    backends = ("grpc",)
    # Others need workers that share their gradients, weigh them by their samples, or tell of one step at once.
    cases = tuple(
        case
        for case in (*CASES, *ASYNCHRONOUS_CASES)
        if case not in ("unequal_shares", "accumulation", "local_statistics", "global_statistics")
    )
    join = lazy_method("dlb_tf.parameter_server", "ParameterServerSession")

    def plan(self, request: PlanRequest) -> LaunchPlan:
        """A coordinator, which dlb asks, the server, and TensorFlow's workers, which the coordinator asks."""
        chief, server, *workers = (
            f"{request.host}:{port}" for port in request.ports[: request.workers + 2]
        )
        cluster = {"chief": [chief], "ps": [server], "worker": workers}
        ranks = range(request.workers)
        return LaunchPlan(
            (
                Process("worker", 0, member(cluster, "chief", 0)),
                Process("server", 0, member(cluster, "ps", 0)),
                *(Process("trainer", rank, member(cluster, "worker", rank)) for rank in ranks),
            )
        )

    serve = lazy_method("dlb_tf.parameter_server", "serve")


class TFAdapter(Adapter):
    """TensorFlow, through Keras."""

    name = "tf"
    title = "TensorFlow"
    distribution = "dlb-tf"
    framework = ("tensorflow", "tensorflow-cpu")
    contract = (2, 1)
    layers = LAYERS
    optimizers = {
        "sgd": "native; Keras's velocity is scaled by the learning rate, so it is rescaled when that "
        "changes; coupled weight decay is added to the gradients",
        "adam": "native, with an epsilon that follows the step so that it comes after the bias "
        "correction, and an embedding's gradient summed by row, which Keras forgets before it "
        "squares; coupled weight decay is added to the gradients",
        "adamw": "native, changed as adam; Keras's own decay",
        "rmsprop": "native with epsilon inside, an embedding's gradient summed by row, the velocity "
        "rescaled as sgd's; with epsilon outside, composed of TensorFlow's operations",
        "adagrad": "native with epsilon inside, an embedding's gradient summed by row; with epsilon "
        "outside, composed of TensorFlow's operations",
        "adadelta": "native, an embedding's gradient summed by row",
        "adamax": "native with epsilon outside, an embedding's gradient summed by row; with epsilon "
        "inside, composed of TensorFlow's operations",
    }
    losses = {
        "softmax_cross_entropy": "native; "
        "smoothed labels, and a weight of each after it, 0 for one that is ignored",
        "binary_cross_entropy": "native",
        "squared_error": "native",
        "absolute_error": "native",
        "huber": "native",
        "ctc": "native; in float64, composed of the forward variables: TensorFlow's own computes in float32",
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
    exporter = "tf2onnx.convert.from_function"
    variants = {"compile": ("graph", "xla", "no"), "precision": ("full", "bfloat16")}
    strategies = (MultiWorkerMirrored(), Mirrored(), CentralStorage(), ParameterServer())

    start = lazy_method("dlb_tf.framework", "start")
    clock = lazy_method("dlb_tf.framework", "clock")
    peak_work = lazy_method("dlb_tf.framework", "peak_work")
    build_model = lazy_method("dlb_tf.model", "build")
    load_data = lazy_method("dlb_tf.data", "load")
    export_onnx = lazy_method("dlb_tf.export", "export")
    load_user_model = lazy_method("dlb_tf.user_model", "UserKerasModel")


adapter = TFAdapter()
