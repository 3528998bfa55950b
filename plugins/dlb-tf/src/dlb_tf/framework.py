"""TensorFlow itself: start, threads, device, clock."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from dlb_worker.contract import Clock, FrameworkFacts, PeakRequest, StartRequest
from dlb_worker.errors import UnsupportedError


def start(request: StartRequest) -> FrameworkFacts:
    """Set threads, device and seed; report version, device and how TensorFlow was built.

    Nothing is computed here: that would start the runtime, and a strategy has to come first.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # errors and warnings of ours, not its news
    os.environ["KERAS_BACKEND"] = "tensorflow"
    import keras
    import tensorflow as tf

    tf.get_logger().setLevel("ERROR")
    tf.config.threading.set_intra_op_parallelism_threads(request.threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    keras.utils.set_random_seed(request.seed)
    built = tf.sysconfig.get_build_info()
    name = _use_device(request.device)
    build = {
        "keras": keras.__version__,
        "onednn": os.environ.get("TF_ENABLE_ONEDNN_OPTS", "as built"),
        "cuda": str(built.get("cuda_version") or built["is_cuda_build"]),
        "cudnn": str(built.get("cudnn_version")),
        "compile_flags": " ".join(tf.sysconfig.get_compile_flags()[1:]),
        "inter_op_threads": str(tf.config.threading.get_inter_op_parallelism_threads()),
    }
    threads = tf.config.threading.get_intra_op_parallelism_threads()
    return FrameworkFacts(tf.__version__, threads, name, build)


def _use_device(device: str) -> str:
    """Let TensorFlow see only the requested device; return its name."""
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    if device == "cpu":
        tf.config.set_visible_devices([], "GPU")
        logical = [tf.config.LogicalDeviceConfiguration()] * int(
            os.environ.get("DLB_TF_REPLICAS", 1)
        )
        if len(logical) > 1:
            (processor,) = tf.config.list_physical_devices("CPU")
            tf.config.set_logical_device_configuration(processor, logical)
        return "cpu"
    if not gpus:
        raise UnsupportedError(
            f"TensorFlow {tf.__version__} sees no CUDA device; use --device cpu, or install "
            "dlb-tf[cuda] on a machine with an NVIDIA GPU"
        )
    mine = gpus[int(os.environ.get("DLB_TF_RANK", "0")) % len(gpus)]
    tf.config.set_visible_devices([mine], "GPU")
    tf.config.experimental.set_memory_growth(mine, True)
    # TF32 is not float32.
    tf.config.experimental.enable_tensor_float_32_execution(False)
    return str(tf.config.experimental.get_device_details(mine).get("device_name", mine.name))


def clock(device: str) -> Clock:
    """A function on CPU returns when it is done; a CUDA step ends when the device has synced."""
    import tensorflow as tf

    sync = tf.test.experimental.sync_devices
    return Clock(lambda result: sync()) if device == "cuda" else Clock()


def peak_work(request: PeakRequest) -> Callable[[], Any]:
    """A product of TensorFlow's own tensors; for a copy, a sum with 0, since TensorFlow copies nothing."""
    import tensorflow as tf

    dtype = tf.as_dtype(request.dtype)
    if request.work == "copy":
        source, nothing = tf.ones(request.size, dtype), tf.zeros((), dtype)
        return lambda: source + nothing
    shape = (request.size, request.size)
    first, second = (tf.cast(tf.random.normal(shape), dtype) for _ in range(2))
    return lambda: first @ second


@contextmanager
def default_dtype(dtype: str, policy: str = "") -> Iterator[None]:
    """While it lasts, layers and optimizers are made in a dtype.

    Keras keeps weights by the default policy, and a learning rate by the default floating type.

    Args:
        policy: of layers, if it is not that of the dtype: ``mixed_bfloat16``.
    """
    import keras

    before, floatx = keras.config.dtype_policy(), keras.config.floatx()
    keras.config.set_dtype_policy(policy or dtype)
    keras.config.set_floatx(dtype)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)
        keras.config.set_floatx(floatx)
