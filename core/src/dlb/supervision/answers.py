"""What a worker says, as the protocol has it: checked once, where it comes in.

A worker is a stranger: its program may be of another language, another version, or wrong. What it says is
only as deep, and its numbers are only as large, as documents may keep. Unknown fields are ignored.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import msgspec

from dlb.documents import plain
from dlb.errors import WorkerError
from dlb_worker.contract import Dropout, ParameterDescription, UserLayer

__all__ = ["ErrorAnswer", "Hello", "LoadedModel", "answer_as", "check_result", "worth_reading"]

#: Bytes of the facts that a worker states about itself, which every record keeps.
MOST_FACTS = 1 << 20

Form = TypeVar("Form", bound=msgspec.Struct)
#: Neither negative, nor infinite, nor NaN; nobody waits for 1e12 seconds.
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e12)]
Clock = Annotated[float, msgspec.Meta(ge=-1e15, le=1e15)]
Count = Annotated[int, msgspec.Meta(ge=0)]


class Hello(msgspec.Struct):
    """What a process says first, once its token is known to be right."""

    hello: int
    role: str
    rank: int
    pid: int
    carried: bool = False


class ErrorAnswer(msgspec.Struct):
    """An answer that is an error."""

    kind: str
    message: str
    traceback: str = ""


class _Started(msgspec.Struct):
    framework: str
    version: str
    threads: int | None = None
    device: str | None = None
    build: dict[str, Any] | None = None
    python: str | None = None
    executable: str | None = None
    packages: dict[str, Any] | None = None
    libraries: list[Any] | None = None
    variables: dict[str, Any] | None = None


class _Adapter(msgspec.Struct):
    name: str
    title: str = ""
    layers: dict[str, Any] | list[str] = []
    optimizers: dict[str, Any] | list[str] = []
    losses: dict[str, Any] | list[str] = []
    dtypes: list[str] = []
    devices: list[str] = []
    variants: dict[str, list[str]] = {}
    features: list[str] = []
    deviations: list[str] = []
    framework_version: str = ""


class _Strategy(msgspec.Struct):
    name: str
    title: str
    frameworks: list[str]
    synchronous: bool
    parallelism: str
    parameters: str
    backends: list[str]
    devices: list[str]


class _Plugin(msgspec.Struct):
    hooks: list[str] = []


class _Broken(msgspec.Struct):
    reason: str


class _Described(msgspec.Struct):
    adapters: list[_Adapter]
    strategies: list[_Strategy] = []
    plugins: list[_Plugin] = []
    broken: list[_Broken] = []


class _Process(msgspec.Struct):
    role: str
    rank: Count
    environment: dict[str, str]


class _Plan(msgspec.Struct):
    processes: list[_Process]
    launcher: list[str] = []
    rank_variables: list[str] = []
    shares: Count = 0


class _Built(msgspec.Struct):
    model: int
    layers: dict[str, str] = {}


class LoadedModel(msgspec.Struct):
    """The answer to ``load``."""

    model: int
    layers: list[UserLayer]
    parameters: list[ParameterDescription]
    input_shape: tuple[int, ...] | None = None


class _Call(msgspec.Struct):
    layer: str
    inputs: int | None
    output: int | None
    others: list[int | None] = []
    dropout: Dropout | None = None


class _Forward(msgspec.Struct):
    outputs: list[int]
    calls: list[_Call]
    names: list[str] = []


class _Advanced(msgspec.Struct):
    phase: str


class _Trained(msgspec.Struct):
    seconds: Seconds
    cpu_seconds: Seconds
    busy_threads: Count | None
    memory_bytes: Count | None
    observed: dict[str, Any]


class _Ended(_Trained):
    clock: Clock
    staleness: list[Count] = []


class _Begun(msgspec.Struct):
    clock: Clock


class _Audited(msgspec.Struct):
    read_before: Seconds
    read_after: Seconds
    read_again: Seconds
    waited_before: Clock
    waited_after: Clock
    waited_again: Clock
    masks_unknown: str = ""
    changed: list[str] | None = None
    placed: bool = False


class _Phases(msgspec.Struct):
    seconds: dict[str, list[Seconds]]
    unknown: str


class _Predicted(msgspec.Struct):
    seconds: Seconds
    changed: list[str] = []


class _Exported(msgspec.Struct):
    exporter: str = ""


class _Peak(msgspec.Struct):
    size: Count
    rates: list[Seconds]


#: Results of calls whose fields dlb reads.
_RESULTS: dict[str, type[msgspec.Struct]] = {
    "start": _Started,
    "describe": _Described,
    "plan": _Plan,
    "build": _Built,
    "load": LoadedModel,
    "forward": _Forward,
    "train": _Trained,
    "begin_training": _Begun,
    "advance": _Advanced,
    "audit_step": _Audited,
    "end_training": _Ended,
    "time_phases": _Phases,
    "predict": _Predicted,
    "export": _Exported,
    "peak": _Peak,
}


def answer_as(form: type[Form], said: Any, what: str, adapter: str) -> Form:
    """What a worker said, as the protocol has it.

    Args:
        what: what it is, for messages.

    Raises:
        WorkerError: it does not have the fields, or they are of other types.
    """
    try:
        return msgspec.convert(plain(said), form)
    except msgspec.ValidationError as error:
        raise _broken(what, str(error), adapter) from None


def check_result(call: str, said: Any, adapter: str) -> dict[str, Any]:
    """The result that a worker answered a call with.

    Raises:
        WorkerError: it is not as the protocol has it.
    """
    what = f"answer to '{call}'"
    try:
        result = plain(said)
        if not isinstance(result, dict):
            raise msgspec.ValidationError("its 'result' is not an object")
        if call in _RESULTS:
            known = msgspec.structs.asdict(msgspec.convert(result, _RESULTS[call]))
            # Fields that dlb does not know are kept, for people.
            result = {**{k: v for k, v in known.items() if v is not None}, **result}
        if call == "start" and len(msgspec.json.encode(result)) > MOST_FACTS:
            raise msgspec.ValidationError(f"it is larger than {MOST_FACTS} bytes")
    except msgspec.ValidationError as error:
        raise _broken(what, str(error), adapter) from None
    return result


def worth_reading(message: dict[str, Any]) -> dict[str, Any] | None:
    """What somebody waits for in a message: an answer, or how far a training is.

    Returns:
        the answer; ``event``, and ``step`` and ``loss`` if they are numbers; None for a sign of life.
    """
    if message.get("event") != "progress":
        return message if "id" in message else None
    step, loss = message.get("step"), message.get("loss")
    is_number = isinstance(loss, float) or (isinstance(loss, int) and abs(loss) < 2**63)
    if is_number and isinstance(step, int) and 0 <= step < 2**63:
        return {"event": "progress", "step": step, "loss": loss}
    return {"event": "progress"}


def _broken(what: str, reason: str, adapter: str) -> WorkerError:
    return WorkerError(f"its worker's {what} breaks the protocol: {reason}", adapter=adapter)
