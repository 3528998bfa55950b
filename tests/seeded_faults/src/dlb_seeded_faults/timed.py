"""Faults of the timed run alone: what is proven is right, and what is timed does other work.

Each replaces a part of torch's adapter: the step, the batches, the clock, or the exchange of gradients.
"""

from __future__ import annotations

import dataclasses
import itertools
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dlb_torch import model as torch_model
from dlb_worker.contract import Clock

Batch = tuple[Tensor, Tensor]
Step = Callable[[Tensor, Tensor], Tensor]
#: Steps of an epoch of synthetic data.
EPOCH = 32
#: Batches of tests before the one at the end, where there is one every 16 of 64 steps.
TESTS_BEFORE = 32
#: By torch's names, what faults alter of its optimizer.
VELOCITY = "momentum_buffer"


@dataclass(frozen=True)
class TimedFault:
    """A fault of the timed run.

    Attributes:
        name: what is different.
        check: the check that must find it; empty for any, where it depends on the steps that are drawn.
        model: alters the model.
        batches: replaces the batches of a run.
        clock: replaces the clock.
        workload: of ``workloads``.
        workers: of the strategy ``ddp``; 1 for none.
        rare: whether it is in one of ten steps, or fewer.
        steps: of the run; two epochs, so that a fault in one of ten is in six.
        alone: whether it alters more than its model, and needs a process of its own.
        test_steps: the model is tested every so many steps; None for the end alone.
    """

    name: str
    check: str
    model: Callable[[Any], None] | None = None
    batches: Callable[[Any, Iterable[Batch]], Iterable[Batch]] | None = None
    clock: Callable[[Clock], Clock] | None = None
    workload: str = "timed"
    workers: int = 1
    rare: bool = False
    alone: bool = False
    steps: int = 64
    test_steps: int | None = None


TIMED: dict[str, TimedFault] = {}
BATCHES, STEPS, LOSSES, CLOCK = ("audit, batches", "audit, steps", "audit, losses", "audit, clock")
TEST = "audit, test"


def model_fault(
    name: str, check: str = STEPS, **options: Any
) -> Callable[[Callable[[Any], None]], None]:
    """Register a function that alters the model."""

    def register(apply: Callable[[Any], None]) -> None:
        TIMED[name] = TimedFault(name, check, model=apply, **options)

    return register


def step_fault(
    name: str, check: str = STEPS, **options: Any
) -> Callable[[Callable[[Any, Step, int, Tensor, Tensor], Tensor]], None]:
    """Register ``step(model, right_step, number, inputs, labels)``, which replaces the timed step."""

    def register(step: Callable[[Any, Step, int, Tensor, Tensor], Tensor]) -> None:
        def alter(model: Any) -> None:
            right, numbers = model.train_step, itertools.count()
            model.train_step = lambda x, y: step(model, right, next(numbers), x, y)

        TIMED[name] = TimedFault(name, check, model=alter, **options)

    return register


def batches_fault(
    name: str, **options: Any
) -> Callable[[Callable[[Any, Iterable[Batch]], Iterable[Batch]]], None]:
    """Register a function of the request and the right batches, which returns other ones."""

    def register(other: Callable[[Any, Iterable[Batch]], Iterable[Batch]]) -> None:
        TIMED[name] = TimedFault(name, BATCHES, batches=other, **options)

    return register


def between_fault(name: str, **options: Any) -> Callable[[Callable[[Any, int], None]], None]:
    """Register ``change(model, number)``, which is called before a step's batch is there."""

    def register(change: Callable[[Any, int], None]) -> None:
        models: list[Any] = []

        def batches(request: Any, right: Iterable[Batch]) -> Iterator[Batch]:
            model = models[-1]
            for number, batch in enumerate(right):
                change(model, number)
                yield batch

        TIMED[name] = TimedFault(name, STEPS, model=models.append, batches=batches, **options)

    return register


def clock_fault(name: str, **options: Any) -> Callable[[Callable[[Clock], Clock]], None]:
    """Register a function of the right clock, which returns another one."""

    def register(other: Callable[[Clock], Clock]) -> None:
        TIMED[name] = TimedFault(name, CLOCK, clock=other, **options)

    return register


def backward(model: Any, inputs: Tensor, labels: Tensor) -> Tensor:
    """The right step up to its gradients."""
    loss = torch_model.mean_loss(model.module(inputs), labels, model.workload.loss)
    model.optimizer.zero_grad()
    loss.backward()
    return loss


def parameters(model: Any) -> list[Tensor]:
    return list(model.network.parameters())


def of_layer(model: Any, name: str) -> Any:
    return model.network.layers[torch_model.key(name)]


# --- the step does other work ------------------------------------------------------------------


@step_fault("half of the batch is trained")
def _(model: Any, right: Step, number: int, x: Tensor, y: Tensor) -> Tensor:
    return right(x[: len(x) // 2], y[: len(y) // 2])


@step_fault("the first sample is left out")
def _(model: Any, right: Step, number: int, x: Tensor, y: Tensor) -> Tensor:
    return right(x[1:], y[1:])


@step_fault("one update in ten is left out", rare=True)
def _(model: Any, right: Step, number: int, x: Tensor, y: Tensor) -> Tensor:
    if number % 10 != 9:
        return right(x, y)
    with torch.no_grad():
        return torch_model.mean_loss(model.module(x), y, model.workload.loss)


@step_fault("steps after the 25th do nothing")
def _(model: Any, right: Step, number: int, x: Tensor, y: Tensor) -> Tensor:
    if number < 25:
        return right(x, y)
    with torch.no_grad():
        return torch_model.mean_loss(model.module(x), y, model.workload.loss)


@step_fault("only the last layer moves")
def _(model: Any, right: Step, number: int, x: Tensor, y: Tensor) -> Tensor:
    loss = backward(model, x, y)
    for parameter in parameters(model)[:-2]:
        parameter.grad = None
    model.optimizer.step()
    return loss.detach()


@step_fault("a bias does not move")
def _(model: Any, right: Step, number: int, x: Tensor, y: Tensor) -> Tensor:
    loss = backward(model, x, y)
    of_layer(model, "hidden").bias.grad = None
    model.optimizer.step()
    return loss.detach()


@step_fault("half of the hidden units")
def _(model: Any, right: Step, number: int, x: Tensor, y: Tensor) -> Tensor:
    loss = backward(model, x, y)
    of_layer(model, "hidden").weight.grad[8:] = 0
    model.optimizer.step()
    return loss.detach()


@step_fault("bfloat16 in the step alone")
def _(model: Any, right: Step, number: int, x: Tensor, y: Tensor) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return right(x, y)


@step_fault("ten bits of mantissa in the step alone")
def _(model: Any, right: Step, number: int, x: Tensor, y: Tensor) -> Tensor:
    loss = backward(model, x, y)
    for parameter in parameters(model):
        bits = parameter.grad.view(torch.int32)
        parameter.grad = (bits + 0x1000 & ~0x1FFF).view(torch.float32)
    model.optimizer.step()
    return loss.detach()


@step_fault("gradients go through float16")
def _(model: Any, right: Step, number: int, x: Tensor, y: Tensor) -> Tensor:
    loss = backward(model, x, y)
    for parameter in parameters(model):
        parameter.grad = parameter.grad.half().float()
    model.optimizer.step()
    return loss.detach()


@step_fault("the first gradient again and again")
def _(model: Any, right: Step, number: int, x: Tensor, y: Tensor) -> Tensor:
    if number == 0:
        loss = backward(model, x, y)
        model.kept = [parameter.grad.clone() for parameter in parameters(model)]
    else:
        with torch.no_grad():
            loss = torch_model.mean_loss(model.module(x), y, model.workload.loss)
        for parameter, gradient in zip(parameters(model), model.kept):
            parameter.grad = gradient.clone()
    model.optimizer.step()
    return loss.detach()


@step_fault("gradients are never set to zero")
def _(model: Any, right: Step, number: int, x: Tensor, y: Tensor) -> Tensor:
    loss = torch_model.mean_loss(model.module(x), y, model.workload.loss)
    loss.backward()
    model.optimizer.step()
    return loss.detach()


@step_fault("gradients of two batches are added up")
def _(model: Any, right: Step, number: int, x: Tensor, y: Tensor) -> Tensor:
    loss = torch_model.mean_loss(model.module(x), y, model.workload.loss)
    if number % 2 == 0:
        model.optimizer.zero_grad()
    loss.backward()
    if number % 2:
        model.optimizer.step()
    return loss.detach()


@step_fault("two updates a step")
def _(model: Any, right: Step, number: int, x: Tensor, y: Tensor) -> Tensor:
    loss = right(x, y)
    model.optimizer.step()
    return loss


@step_fault("the loss is divided by one sample more")
def _(model: Any, right: Step, number: int, x: Tensor, y: Tensor) -> Tensor:
    loss = torch_model.mean_loss(model.module(x), y, model.workload.loss)
    model.optimizer.zero_grad()
    (loss * len(x) / (len(x) + 1)).backward()
    model.optimizer.step()
    return loss.detach()


@step_fault("labels are smoothed in the step alone", LOSSES)
def _(model: Any, right: Step, number: int, x: Tensor, y: Tensor) -> Tensor:
    loss = torch.nn.functional.cross_entropy(model.module(x), y, label_smoothing=0.05)
    model.optimizer.zero_grad()
    loss.backward()
    model.optimizer.step()
    return loss.detach()


@step_fault("evaluation mode in the step", LOSSES)
def _(model: Any, right: Step, number: int, x: Tensor, y: Tensor) -> Tensor:
    model.network.eval()
    loss = right(x, y)
    model.network.train()
    return loss


@step_fault("evaluation mode in one step of ten", rare=True)
def _(model: Any, right: Step, number: int, x: Tensor, y: Tensor) -> Tensor:
    model.network.train(number % 10 != 3)
    loss = right(x, y)
    model.network.train()
    return loss


@step_fault("running statistics do not move")
def _(model: Any, right: Step, number: int, x: Tensor, y: Tensor) -> Tensor:
    norm = of_layer(model, "norm")
    kept = norm.running_mean.clone(), norm.running_var.clone()
    loss = right(x, y)
    with torch.no_grad():
        norm.running_mean.copy_(kept[0])
        norm.running_var.copy_(kept[1])
    return loss


@step_fault("gradients are clipped where nothing says so")
def _(model: Any, right: Step, number: int, x: Tensor, y: Tensor) -> Tensor:
    loss = backward(model, x, y)
    torch.nn.utils.clip_grad_norm_(model.network.parameters(), 0.1)
    model.optimizer.step()
    return loss.detach()


@step_fault("the rate doubles after 25 steps")
def _(model: Any, right: Step, number: int, x: Tensor, y: Tensor) -> Tensor:
    if number < 25:
        return right(x, y)
    (group,) = model.optimizer.param_groups
    kept = group["lr"]
    group["lr"] = 2 * kept
    loss = right(x, y)
    group["lr"] = kept
    return loss


@model_fault("the schedule's milestone is not heeded")
def _(model: Any) -> None:
    right, rates = model.set_learning_rate, []

    def set_rate(rate: float) -> None:
        rates.append(rate)
        right(rates[0])

    model.set_learning_rate = set_rate


@step_fault("the velocity is forgotten every tenth step", rare=True)
def _(model: Any, right: Step, number: int, x: Tensor, y: Tensor) -> Tensor:
    if number % 10 == 7:
        for state in model.optimizer.state.values():
            state[VELOCITY].zero_()
    return right(x, y)


@step_fault("no weight decay in the step")
def _(model: Any, right: Step, number: int, x: Tensor, y: Tensor) -> Tensor:
    model.optimizer.param_groups[0]["weight_decay"] = 0.0
    return right(x, y)


@step_fault("weights are rounded to bfloat16 after a step")
def _(model: Any, right: Step, number: int, x: Tensor, y: Tensor) -> Tensor:
    loss = right(x, y)
    with torch.no_grad():
        for parameter in parameters(model):
            parameter.copy_(parameter.bfloat16())
    return loss


@step_fault("weights are held between bounds")
def _(model: Any, right: Step, number: int, x: Tensor, y: Tensor) -> Tensor:
    loss = right(x, y)
    with torch.no_grad():
        for parameter in parameters(model):
            parameter.clamp_(-0.2, 0.2)
    return loss


@step_fault("weights look ahead every tenth step", rare=True)
def _(model: Any, right: Step, number: int, x: Tensor, y: Tensor) -> Tensor:
    loss = right(x, y)
    if number == 0:
        model.slow = [parameter.detach().clone() for parameter in parameters(model)]
    if number % 10 == 5:
        with torch.no_grad():
            for parameter, slow in zip(parameters(model), model.slow):
                slow.lerp_(parameter, 0.5)
                parameter.copy_(slow)
    return loss


@step_fault("gradients are noisy")
def _(model: Any, right: Step, number: int, x: Tensor, y: Tensor) -> Tensor:
    loss = backward(model, x, y)
    for parameter in parameters(model):
        parameter.grad *= 1 + 1e-3 * torch.randn_like(parameter.grad)
    model.optimizer.step()
    return loss.detach()


@model_fault("no dropout in the step", workload="dropped")
def _(model: Any) -> None:
    right = model.train_step

    def step(x: Tensor, y: Tensor) -> Tensor:
        model.network.eval()
        loss = right(x, y)
        model.network.train()
        return loss

    model.train_step = step


@step_fault("dropout's rate is another in the step", workload="dropped")
def _(model: Any, right: Step, number: int, x: Tensor, y: Tensor) -> Tensor:
    late = of_layer(model, "late")
    late.p = 0.3
    loss = right(x, y)
    late.p = 0.5
    return loss


@step_fault("a step does nothing unless its weights are read", "", steps=200)
def _(model: Any, right: Step, number: int, x: Tensor, y: Tensor) -> Tensor:
    if number == 0:
        model.was_read = True
        read = model.optimizer_state

        def note() -> Any:
            model.was_read = True
            return read()

        model.optimizer_state = note
    watched, model.was_read = model.was_read, False
    if watched:
        return right(x, y)
    with torch.no_grad():
        return torch_model.mean_loss(model.module(x), y, model.workload.loss)


class Scaled(torch.autograd.Function):
    """The identity, whose gradient is off by a hundredth."""

    @staticmethod
    def forward(context: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(context: Any, cotangent: Tensor) -> Tensor:  # type: ignore[override]
        return cotangent * 1.01


@model_fault("a float32 kernel off by a hundredth that judges itself")
def _(model: Any) -> None:
    # As for every model in float32, the one that judges again in float32 included.
    of_layer(model, "conv").register_forward_hook(lambda conv, x, y: Scaled.apply(y))


@model_fault("a float32 product in bfloat16 that judges itself", LOSSES)
def _(model: Any) -> None:
    hidden = of_layer(model, "hidden")
    hidden.forward = lambda x: (
        torch.nn.functional.linear(x.bfloat16(), hidden.weight.bfloat16()).float() + hidden.bias
    )


# --- between two steps ----------------------------------------------------------------------------


@between_fault("weights of three steps ago are restored every tenth step", rare=True)
def _(model: Any, number: int) -> None:
    kept = model.__dict__.setdefault("kept", [])
    with torch.no_grad():
        if number % 10 == 7:
            for parameter, array in zip(parameters(model), kept[-3]):
                parameter.copy_(array)
        kept.append([parameter.clone() for parameter in parameters(model)])


@between_fault("weights are put away in bfloat16 between steps")
def _(model: Any, number: int) -> None:
    with torch.no_grad():
        for parameter in parameters(model):
            parameter.copy_(parameter.bfloat16())


@between_fault("the optimizer is made anew at an epoch")
def _(model: Any, number: int) -> None:
    if number == EPOCH:
        model.optimizer.state.clear()


@step_fault("the optimizer is made anew before an epoch ends")
def _(model: Any, right: Step, number: int, x: Tensor, y: Tensor) -> Tensor:
    loss = right(x, y)
    if number == EPOCH - 1:
        model.optimizer.state.clear()
    return loss


@step_fault("the optimizer is made anew where the rate changes")
def _(model: Any, right: Step, number: int, x: Tensor, y: Tensor) -> Tensor:
    (group,) = model.optimizer.param_groups
    if group["lr"] != getattr(model, "rate", group["lr"]):
        model.optimizer.state.clear()
    model.rate = group["lr"]
    return right(x, y)


@between_fault("running statistics are forgotten at an epoch")
def _(model: Any, number: int) -> None:
    if number == EPOCH:
        of_layer(model, "norm").reset_running_stats()


# --- the test of the model ------------------------------------------------------------------------


def forward_fault(
    name: str, check: str = TEST, **options: Any
) -> Callable[[Callable[..., Any]], None]:
    """Register ``forward(model, right_forward, inputs)``, which replaces forward passes of tests."""

    def register(forward: Callable[..., Any]) -> None:
        def alter(model: Any) -> None:
            right = model.forward

            def replaced(x: np.ndarray, *, training: bool = False, layers: Any = ()) -> Any:
                if training or layers or len(x) != model.batch_size:
                    return right(x, training=training, layers=layers)
                return forward(model, right, x)

            model.forward = replaced

        TIMED[name] = TimedFault(name, check, model=alter, **options)

    return register


@forward_fault("every batch of the test gets the first one's logits")
def _(model: Any, right: Any, x: np.ndarray) -> Any:
    return model.__dict__.setdefault("cached", right(x))


@forward_fault("one batch of the test gets the logits of the one before")
def _(model: Any, right: Any, x: np.ndarray) -> Any:
    number = model.tests = getattr(model, "tests", 0) + 1
    if number == 5:
        return model.cached
    model.cached = right(x)
    return model.cached


@forward_fault("the test is in training mode")
def _(model: Any, right: Any, x: np.ndarray) -> Any:
    return right(x, training=True)


@forward_fault("dropout acts in the test", workload="dropped")
def _(model: Any, right: Any, x: np.ndarray) -> Any:
    return right(x, training=True)


@forward_fault("the test computes in bfloat16")
def _(model: Any, right: Any, x: np.ndarray) -> Any:
    with torch.autocast("cpu", torch.bfloat16):
        return {name: array.astype(np.float32) for name, array in right(x).items()}


@forward_fault("tests before the end are in training mode", test_steps=16)
def _(model: Any, right: Any, x: np.ndarray) -> Any:
    number = model.tests = getattr(model, "tests", 0) + 1
    return right(x, training=number <= TESTS_BEFORE)


@forward_fault("a test moves the running statistics", STEPS, test_steps=16)
def _(model: Any, right: Any, x: np.ndarray) -> Any:
    model.network.train()
    with torch.no_grad():
        model.module(model.native(x))
    return right(x)


# --- the loss that is told ------------------------------------------------------------------------


@step_fault("the loss of the step before is told", LOSSES)
def _(model: Any, right: Step, number: int, x: Tensor, y: Tensor) -> Tensor:
    told = getattr(model, "told", torch.tensor(2.3))
    model.told = right(x, y)
    return told


@step_fault("the loss is told with a penalty", LOSSES)
def _(model: Any, right: Step, number: int, x: Tensor, y: Tensor) -> Tensor:
    penalty = sum((parameter.detach() ** 2).sum() for parameter in parameters(model))
    return right(x, y) + 5e-4 * penalty


@step_fault("a running mean of the loss is told", LOSSES)
def _(model: Any, right: Step, number: int, x: Tensor, y: Tensor) -> Tensor:
    loss = right(x, y)
    model.told = 0.9 * getattr(model, "told", loss) + 0.1 * loss
    return model.told


@step_fault("the loss is told with three digits", LOSSES)
def _(model: Any, right: Step, number: int, x: Tensor, y: Tensor) -> Tensor:
    return right(x, y).round(decimals=2)


# --- the clock --------------------------------------------------------------------------------------


@clock_fault("the clock tells half of the time")
def _(right: Clock) -> Clock:
    class Half(Clock):
        def stop(self, result: Any = None) -> float:
            return super().stop(result) / 2

    return Half(right.wait)


@clock_fault("the clock starts in the middle of the step")
def _(right: Clock) -> Clock:
    class Late(Clock):
        def stop(self, result: Any = None) -> float:
            self.wait(result)
            now = time.perf_counter()
            return now - (self._started + now) / 2

    return Late(right.wait)


@clock_fault("the clock's seconds are longer", alone=True)
def _(right: Clock) -> Clock:
    import dlb_worker.contract as contract
    import dlb_worker.training as training

    class Slow:
        @staticmethod
        def perf_counter() -> float:
            return time.perf_counter() * 0.7

    contract.time = training.time = Slow  # type: ignore[assignment]
    return right


@step_fault("the step ends after its clock", CLOCK)
def _(model: Any, right: Step, number: int, x: Tensor, y: Tensor) -> Any:
    class Later:
        def __init__(self) -> None:
            self.thread = threading.Thread(target=self.work)
            self.thread.start()

        def work(self) -> None:
            self.loss = right(x, y)

        def __float__(self) -> float:
            self.thread.join()
            return float(self.loss)

    return Later()


@model_fault("the update goes on after the step", CLOCK)
def _(model: Any) -> None:
    running: list[threading.Thread] = []

    def finish() -> None:
        while running:
            running.pop().join()

    def step(x: Tensor, y: Tensor) -> Tensor:
        finish()
        loss = backward(model, x, y)

        def update() -> None:
            time.sleep(0.01)
            model.optimizer.step()

        running.append(threading.Thread(target=update))
        running[0].start()
        return loss.detach()

    read = model.read

    def wait_and_read(native: Tensor) -> Any:
        finish()
        return read(native)

    model.train_step, model.read = step, wait_and_read


# --- batches ------------------------------------------------------------------------------------------


@batches_fault("the first batch again and again")
def _(request: Any, right: Iterable[Batch]) -> Iterable[Batch]:
    return itertools.repeat(next(iter(right)))


@batches_fault("samples in the order of the file")
def _(request: Any, right: Iterable[Batch]) -> Iterable[Batch]:
    order = np.arange(request.order.size).reshape(request.order.shape) % len(request.inputs)
    other = dataclasses.replace(request, order=order)
    return from_request(other)


@batches_fault("another order from the second epoch on")
def _(request: Any, right: Iterable[Batch]) -> Iterable[Batch]:
    order, epoch = request.order.copy(), len(request.inputs) // request.order.shape[1]
    order[epoch:] = order[epoch:][:, ::-1]
    return from_request(dataclasses.replace(request, order=order))


@batches_fault("labels of the batch before")
def _(request: Any, right: Iterable[Batch]) -> Iterator[Batch]:
    before = None
    for x, y in right:
        yield x, (y if before is None else before)
        before = y


@batches_fault("no augmentation")
def _(request: Any, right: Iterable[Batch]) -> Iterable[Batch]:
    return from_request(dataclasses.replace(request, crops=np.zeros_like(request.crops)))


@batches_fault("mirrored along the other axis")
def _(request: Any, right: Iterable[Batch]) -> Iterable[Batch]:
    crops = request.crops.copy()
    crops[..., 2] = 0
    plain = from_request(dataclasses.replace(request, crops=crops))
    for step, (x, y) in enumerate(plain):
        flipped = torch.from_numpy(request.crops[step, :, 2] == 1)
        yield torch.where(flipped[:, None, None, None], x.flip(2), x), y


@batches_fault("cut out one column further")
def _(request: Any, right: Iterable[Batch]) -> Iterable[Batch]:
    crops = request.crops.copy()
    crops[..., 1] += 1
    return from_request(dataclasses.replace(request, crops=crops))


@batches_fault("the last sample of a batch is left out")
def _(request: Any, right: Iterable[Batch]) -> Iterator[Batch]:
    for x, y in right:
        yield x[:-1], y[:-1]


@batches_fault("the last sample of a batch is its first")
def _(request: Any, right: Iterable[Batch]) -> Iterator[Batch]:
    for x, y in right:
        yield torch.cat([x[:-1], x[:1]]), torch.cat([y[:-1], y[:1]])


@batches_fault("inputs are scaled once more")
def _(request: Any, right: Iterable[Batch]) -> Iterator[Batch]:
    for x, y in right:
        yield x / 255, y


@batches_fault("channels in the other order")
def _(request: Any, right: Iterable[Batch]) -> Iterator[Batch]:
    for x, y in right:
        yield x.flip(1), y


@batches_fault("inputs go through float16")
def _(request: Any, right: Iterable[Batch]) -> Iterator[Batch]:
    for x, y in right:
        yield x.half().float(), y


@batches_fault("one batch in ten is the one before", rare=True)
def _(request: Any, right: Iterable[Batch]) -> Iterator[Batch]:
    before = None
    for step, batch in enumerate(right):
        yield before if step % 10 == 4 and before is not None else batch
        before = batch


@batches_fault("labels of one batch in ten are turned round", rare=True)
def _(request: Any, right: Iterable[Batch]) -> Iterator[Batch]:
    for step, (x, y) in enumerate(right):
        yield x, (y.flip(0) if step % 10 == 4 else y)


def from_request(request: Any) -> Iterable[Batch]:
    """torch's batches of another request."""
    from dlb_torch.data import load

    return load(request)


# --- workers that train together --------------------------------------------------------------------


@step_fault("workers exchange no gradients", BATCHES, workers=2, workload="words")
def _(model: Any, right: Step, number: int, x: Tensor, y: Tensor) -> Tensor:
    with model.module.no_sync():
        return right(x, y)


@step_fault("one exchange in twelve is left out", BATCHES, workers=2, workload="words")
def _(model: Any, right: Step, number: int, x: Tensor, y: Tensor) -> Tensor:
    if number % 12 != 11:
        return right(x, y)
    with model.module.no_sync():
        return right(x, y)
