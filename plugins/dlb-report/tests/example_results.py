"""Results folders as dlb writes them, made in milliseconds: ordinary ones, and those of an attacker."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from dlb import contents, record
from dlb.proof.certificate import Baseline, Certificate, CheckResult, Figure
from dlb_measure.results import measurement as measurements

FRAMEWORKS = {"torch": "PyTorch", "tf": "TensorFlow", "mxnet": "Apache MXNet"}
#: Texts that do harm where they are not escaped.
HOSTILE = (
    "<script>window.harmed=1</script>",
    '"><img src=x onerror=window.harmed=1>',
    "</title></style></svg><svg onload=window.harmed=1>",
    "{{ 7 * 7 }}{% raw %}",
    "\x1b]0;title\x07\x1b[31mred\x1b[0m",
    "\u202egnp.exe\u2066",
    "javascript:window.harmed=1",
    '=HYPERLINK("http://example.org")',
    "x" * 100_000,
    "\\end{document}\\input{/etc/passwd}",
    "| a | b |\n\n# heading [link](http://example.org)",
)
HARMS = "harmed=1"


def options(**changes: Any) -> record.Options:
    chosen: dict[str, Any] = {
        "batch_size": 64, "steps": 80, "warmup": 10, "threads": 2, "device": "cpu",
        "dtype": "float32", "seed": 0, "input": "pipeline", **changes,
    }  # fmt: skip
    return record.Options(**chosen)


def certificate(adapters: list[str], failed: str = "", name: str = "lenet5") -> Certificate:
    """Checks of adapters; those of ``failed`` deviate."""
    checks = [
        CheckResult(
            check=check,
            group=group,
            adapter=adapter,
            baseline=Baseline(kind="canonical_graph"),
            verdict="failed" if adapter == failed and group == "forward" else "passed",
            tolerance=1e-10,
            figures=(
                Figure(
                    tensor="conv1", relative_l2=3e-4 if adapter == failed else 2e-16, largest=0.0
                ),
            ),
        )
        for adapter in adapters
        for check, group in (
            ("weights float64", "weights"),
            ("forward float64", "forward"),
            ("gradients", "gradients"),
            ("audit, steps", "audit"),
        )
    ]
    return Certificate(
        workload=name,
        workload_hash="0" * 64,
        seed=0,
        adapters={each: FRAMEWORKS.get(each, each) for each in adapters},
        checks=tuple(checks),
        made="2026-01-02T03:04:05+00:00",
    )


def run(
    folder: Path, adapter: str, proof: Certificate, number: int = 0, **changes: Any
) -> record.Record:
    """Write a run with its series."""
    steps = np.random.default_rng(number).lognormal(-4.0, 0.1, 80)
    tests = tuple(
        record.Tested(
            step=each, seconds=each * 0.02, accuracy=0.5 + each / 200, loss=2.0 - each / 50
        )
        for each in (20, 40, 60)
    )
    fields: dict[str, Any] = {
        "format": record.FORMAT,
        "name": f"20260102T0304{number:02}Z-lenet5-{adapter}-{number:06x}",
        "started": f"2026-01-02T03:04:{number:02}+00:00",
        "command": "run",
        "adapter": adapter,
        "framework": FRAMEWORKS.get(adapter, adapter),
        "framework_version": "2.0",
        "workload_name": "lenet5",
        "workload": {},
        "workload_hash": "0" * 64,
        "data": {"name": "fashion-mnist-subset", "from": "/data"},
        "options": options(),
        "proof": proof.status(adapter),
        "certificate": proof,
        "machine": {"cpu": "a processor", "available_cores": 2, "system": "Linux"},
        "core": {"version": "0.2.0"},
        "timing": record.Timing(
            total_seconds=2.0, start_seconds=1.0, build_seconds=0.1, median=float(np.median(steps)),
            lower_quartile=0.017, upper_quartile=0.02, samples_per_second=3000.0 + 100 * number,
            cpu_seconds=3.0, busy_threads=2, memory_bytes=300_000_000, other_cores=0.0,
            step_seconds=tuple(steps.tolist()), data_seconds=(0.001,) * 80,
        ),
        "quality": record.Quality(
            test_accuracy=0.8, test_samples=100, tests=tests,
            losses=tuple((2.3 * np.exp(-np.arange(80) / 40)).tolist()),
        ),
        "observed": {"resources": {
            "cpu_user_seconds": 2.5, "cpu_system_seconds": 0.5, "memory_average_bytes": 290_000_000,
            "memory_peak_bytes": 300_000_000, "involuntary_switches": 12, "machine_steal_seconds": 0.0,
            "cpu_energy_joules": None, "cpu_energy_reason": "this machine has no RAPL counters",
            "devices": [], "devices_reason": "the run used none",
            "series": {"seconds": [0.2, 0.4, 0.6], "cores": [1.0, 1.5, 1.4], "memory_bytes": [1e8, 2e8, 3e8]},
        }},
        **changes,
    }  # fmt: skip
    made = record.Record(**fields)
    record.write(made, folder)
    return made


def measure(
    folder: Path,
    records: list[record.Record],
    speeds: list[float],
    rounds: int = 4,
    name: str = "20260102T030500Z-lenet5-aaaaaa",
    change: Callable[[dict[str, Any]], None] | None = None,
) -> measurements.Measurement:
    """Write a measurement of runs: step times are about ``speeds`` seconds.

    Args:
        change: alters the document before it is written.
    """
    drawn = np.random.default_rng(7)
    trials = []
    for number in range(rounds):
        for place, speed in enumerate(speeds):
            for again in (False, True) if place == 0 else (False,):
                seconds = speed * drawn.lognormal(0.0, 0.01, 60) * math.exp(drawn.normal(0, 0.004))
                seconds[:8] *= 3
                moments = np.array([0.25, 0.5, 0.75])
                digest = contents.keep_arrays(
                    folder,
                    {
                        "step_seconds": seconds,
                        "data_seconds": np.full(60, 0.001),
                        "resources/seconds": moments,
                        "resources/cores": moments + 1,
                        "resources/memory_bytes": moments * 1e9,
                    },
                )
                steady = seconds[8:]
                trials.append(
                    measurements.TrialResult(
                        round=number, cell=place, again=again, hash_seed=1, padding=2, attempt=0,
                        started="2026-01-02T03:05:00+00:00", kind="warm-up", first_steady=8,
                        median=float(np.median(steady)), mean=float(steady.mean()),
                        p95=float(np.percentile(steady, 95)), p99=float(np.percentile(steady, 99)),
                        samples_per_second=64 / float(steady.mean()), waiting=0.001, start_seconds=1.0,
                        build_seconds=0.1, first_step_seconds=float(seconds[0]), cpu_seconds=1.0,
                        memory_bytes=300_000_000, disturbed=number == 1 and place == 1,
                        phases={"forward": speed * 0.3, "backward": speed * 0.5, "update": speed * 0.1},
                        checks={"audit, steps": "passed"}, judged=4, series=digest,
                        observed={"resources": {"cpu_user_seconds": 1.0, "cpu_system_seconds": 0.1,
                                                "seconds": 1.0, "memory_peak_bytes": 300_000_000,
                                                "cpu_energy_joules": None}},
                    )
                )  # fmt: skip
    made = measurements.Measurement(
        format=measurements.FORMAT,
        name=name,
        key="",
        started="2026-01-02T03:05:00+00:00",
        seed=0,
        order="interleaved",
        rounds=rounds,
        pilot=None,
        precision=None,
        budget_seconds=None,
        margin=0.01,
        steady="found",
        cells=tuple(
            measurements.Cell(
                adapter=each.adapter,
                framework=f"{each.framework} {each.framework_version}",
                workload_name=each.workload_name,
                workload_hash=each.workload_hash,
                options=each.options,
                proof=each.proof,
                record=each.name,
                operations=10**9,
                bytes=10**8,
            )
            for each in records
        ),
        trials=tuple(trials),
        peaks=(
            measurements.Peak(
                adapter="torch",
                device="cpu",
                dtype="float32",
                threads=2,
                operations_per_second=2e11,
                operations_spread=0.02,
                rows=2048,
                bytes_per_second=2e10,
                bytes_spread=0.01,
            ),
        ),
        ended="rounds",
        machine={"cpu": "a processor", "available_cores": 2, "system": "Linux"},
        core={"version": "0.2.0"},
    )
    if change is not None:
        document = msgspec.json.decode(msgspec.json.encode(made))
        change(document)
        path = folder / "measurements" / f"{name}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(msgspec.json.encode(document))
        return made
    measurements.write(made, folder)
    return made


def ordinary(folder: Path, deviates: str = "") -> Path:
    """Two frameworks in one command with a measurement, and a run with another batch size."""
    folder.mkdir(parents=True, exist_ok=True)
    adapters = ["torch", "tf"]
    proof = certificate(adapters, deviates)
    records = [run(folder, each, proof, number) for number, each in enumerate(adapters)]
    measure(folder, records, [0.018, 0.0236])
    other = options(batch_size=128)
    run(folder, "torch", certificate(["torch"]), 9, options=other)
    return folder


def hostile(folder: Path) -> Path:
    """Every text that a stranger may choose does harm, and every number is none that is drawn."""
    ordinary(folder)
    for number, text in enumerate(HOSTILE, 10):
        proof = msgspec.structs.replace(
            certificate(["torch"], name=text),
            adapters={"torch": text},
            variants={"torch": {text: text}},
            deviations={"torch": (text,)},
        )
        made = run(
            folder, "torch", proof, number,
            framework=text, framework_version=text, workload_name=text, started=text,
            data={"name": text, "from": text}, options=options(variant={text: text}, batch_size=number),
            machine={"cpu": text, "system": text, "memory_bytes": text, "available_cores": text},
            worker={"python": text, "packages": {text: text}, "build": {text: text}},
            core={"version": text},
            observed={
                "resources": {"cpu_energy_reason": text, "devices": [{"name": text, "use": 1e308}],
                              "memory_peak_bytes": 10**200, "devices_reason": [text],
                              "series": {text: [1.0, 2.0], "cores": [1e308, -1e308, 5e-324]}},
                text: {"series": {text: [1.0, None, 3.0]}},
            },
        )  # fmt: skip
        if number < 14:
            name = f"20260102T03{number}00Z-hostile-{number:06x}"
            measure(folder, [made, made], [1e-300, 1e300], 2, name, _change_texts(text))
    huge = [1e308, 5e-324, math.inf, -math.inf, math.nan, -1.0, 0.0, 1e-310]
    timing = record.Timing(
        total_seconds=1e308, start_seconds=-1e308, build_seconds=0.0, median=1e308,
        lower_quartile=-1e308, upper_quartile=1e308, samples_per_second=1e308, cpu_seconds=-1.0,
        busy_threads=10**18, memory_bytes=10**18, other_cores=1e308,
        step_seconds=tuple(huge * 10), data_seconds=tuple(huge * 10),
    )  # fmt: skip
    losses = (None, 1e308, -1e308, 5e-324) * 20
    tests = (record.Tested(step=-(10**18), seconds=-1e308, accuracy=1e308, loss=1e308),)
    quality = record.Quality(test_accuracy=1e308, test_samples=0, tests=tests, losses=losses)
    run(folder, "torch", certificate(["torch"]), 40, timing=timing, quality=quality)
    broken = {
        "not-json.json": b"{",
        "deep.json": b"[" * 5000,
        "empty.json": b"",
        "<img src=x onerror=window.harmed=1>.json": b"{}",
        "measurements/no-cells.json": b'{"format": 1}',
        "many-digits.json": b'{"format": 2, "machine": {"memory_bytes": ' + b"9" * 400 + b"}}",
    }
    for name, content in broken.items():
        (folder / name).write_bytes(content)
    return folder


def _change_texts(text: str) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        document["started"] = document["machine"]["cpu"] = text
        for cell in document["cells"]:
            cell |= {"adapter": text, "framework": text, "workload_name": text}
            # A path to anywhere is not followed.
            cell["record"] = "../../../etc/passwd"
        for trial in document["trials"]:
            trial |= {"first_steady": 10**15, "started": text}
        document["trials"][0] |= {"series": "0" * 64}
        document["trials"][1] |= {"failure": {"kind": text, "message": text}}

    return change
