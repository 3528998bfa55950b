"""Draws the figures of docs/explanation/benchmarks.md and matrix.md, from the CSV files next to them.

    pip install matplotlib && python benchmarks/plots.py

Each function makes one SVG of the name of its CSV. The files are the same at every run.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

FOLDER = Path(__file__).parents[1] / "docs" / "explanation" / "benchmarks"
#: Colour (of Okabe and Ito, told apart by all eyes) and marker of each adapter.
STYLE = {
    "torch": ("#0072B2", "o"),
    "tf": ("#D55E00", "s"),
    "mxnet": ("#009E73", "^"),
    "chainer": ("#CC79A7", "D"),
}
#: Largest ratio of a step through an adapter to one by hand that dlb aims at.
AIM = 1.02
#: Checks of the matrix with their tolerances, where those are the same for every workload.
TOLERANCES = {
    "forward": 1e-10,
    "isolated_layers": 1e-10,
    "differences": 1e-5,
    "gradients": 1e-10,
    "update": 1e-10,
    "steps": 1e-10,
    "export": 1e-5,
}


def rows(name: str) -> list[dict[str, str]]:
    with (FOLDER / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def save(figure: Any, name: str) -> None:
    figure.savefig(FOLDER / f"{name}.svg", metadata={"Date": None}, bbox_inches="tight")
    plt.close(figure)


def legend(axes: Any, **where: Any) -> None:
    handles = [
        plt.Line2D([], [], color=color, marker=marker, linestyle="", label=adapter)
        for adapter, (color, marker) in STYLE.items()
    ]
    axes.legend(handles=handles, frameon=False, **where)


def step_overhead() -> None:
    """Ratio and interval of each workload and adapter."""
    table = rows("step-overhead")
    workloads = sorted({row["workload"] for row in table}, reverse=True)
    figure, axes = plt.subplots(figsize=(8, 10))
    for row in table:
        color, marker = STYLE[row["adapter"]]
        ratio, low, high = (float(row[key]) for key in ("ratio", "ratio_low", "ratio_high"))
        place = workloads.index(row["workload"]) + 0.3 - 0.2 * list(STYLE).index(row["adapter"])
        axes.plot([low, high], [place, place], color=color, linewidth=1)
        axes.plot(ratio, place, color=color, marker=marker, markersize=4, linestyle="")
    axes.axvline(1, color="0.6", linewidth=0.8)
    axes.axvline(AIM, color="0.3", linewidth=0.8, linestyle="--")
    axes.set_yticks(range(len(workloads)), workloads)
    axes.set_ylim(-0.7, len(workloads) - 0.3)
    axes.grid(axis="x", color="0.92")
    axes.set_axisbelow(True)
    axes.set_xlabel(f"step through the adapter / step by hand (dashed: {AIM})")
    legend(axes, loc="lower left", bbox_to_anchor=(0, 1), ncols=4)
    save(figure, "step-overhead")


def false_alarms() -> None:
    """Ratio and interval of each comparison, in groups of what was compared and how."""
    table = rows("false-alarms")
    groups = list(dict.fromkeys((row["order"], row["slower"], row["load"]) for row in table))
    figure, axes = plt.subplots(figsize=(8, 0.07 * len(table) + 0.3 * len(groups) + 1))
    place, ticks = 0.0, []
    for order, slower, load in groups:
        own = [
            row
            for row in table
            if (row["order"], row["slower"], row["load"]) == (order, slower, load)
        ]
        planted, begin = 1 + float(slower) / 100, place
        for row in own:
            right = (row["word"] in ("faster", "slower")) == (planted > 1)
            color = "#009E73" if right else "#D55E00" if planted == 1 else "0.6"
            if row["low"] and row["high"] not in ("", "inf"):
                ends = [max(float(row["low"]), 0.5), min(float(row["high"]), 2.0)]
                axes.plot(ends, [place, place], color=color, linewidth=1)
                axes.plot(float(row["ratio"]), place, color=color, marker="o", markersize=2)
            place -= 1
        axes.plot([planted, planted], [begin + 0.5, place + 0.5], color="black", linewidth=1)
        what = "itself" if planted == 1 else f"{float(slower):g}% slower"
        ticks.append(((begin + place + 1) / 2, f"{what}, {order}{', load' if load == '1' else ''}"))
        place -= 3
    axes.set_xscale("log")
    axes.set_xticks([0.5, 0.7, 0.9, 1, 1.1, 1.4, 2], ["0.5", "0.7", "0.9", "1", "1.1", "1.4", "2"])
    axes.minorticks_off()
    axes.set_yticks([at for at, _ in ticks], [text for _, text in ticks])
    axes.grid(axis="x", color="0.92")
    axes.set_axisbelow(True)
    axes.set_xlabel(
        "ratio of step times, with the 95% interval (black: what is true; green: rightly judged)"
    )
    save(figure, "false-alarms")


def matrix() -> None:
    """Every workload's worst distance in each check."""
    table = rows("matrix")
    checks = [
        key for key in table[0] if "e" in table[0][key] and key not in ("workload", "adapter")
    ]
    checks = checks[: checks.index("export") + 1]
    figure, axes = plt.subplots(figsize=(8, 4.5))
    smallest = 1e-18
    for row in table:
        color, marker = STYLE[row["adapter"]]
        for place, check in enumerate(checks):
            at = place + 0.16 * (list(STYLE).index(row["adapter"]) - 1.5)
            distance = max(float(row[check]), smallest)
            axes.plot(
                at, distance, color=color, marker=marker, markersize=3, linestyle="", alpha=0.6
            )
    for place, check in enumerate(checks):
        if check in TOLERANCES:
            ends = [place - 0.4, place + 0.4]
            axes.plot(ends, [TOLERANCES[check]] * 2, color="black", linewidth=1.5)
    axes.set_yscale("log")
    axes.set_xticks(range(len(checks)), [check.replace("_", "\n") for check in checks], fontsize=7)
    axes.set_ylabel("worst relative L2 distance (0 drawn at 1e-18)")
    axes.grid(axis="y", color="0.92")
    axes.set_axisbelow(True)
    legend(axes, loc="lower left", bbox_to_anchor=(0, 1), ncols=4)
    save(figure, "matrix")


def bars(name: str, value: str, label: str, groups: list[tuple[str, dict[str, str]]]) -> None:
    """Bars of the adapters, in groups: a title, and the columns that its rows have."""
    table = rows(name)
    figure, axes = plt.subplots(figsize=(8, 3))
    for place, (_, columns) in enumerate(groups):
        for number, adapter in enumerate(STYLE):
            wanted = {**columns, "adapter": adapter}
            (row,) = (row for row in table if wanted.items() <= row.items())
            at = place + 0.2 * (number - 1.5)
            height = float(row[value])
            axes.bar(at, height, 0.18, color=STYLE[adapter][0], label="" if place else adapter)
            axes.text(at, height, f"{height:g}", ha="center", va="bottom", fontsize=7)
    axes.set_xticks(range(len(groups)), [title for title, _ in groups])
    axes.set_ylabel(label)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, ncols=4, loc="lower left", bbox_to_anchor=(0, 1))
    save(figure, name)


def proof_memory() -> None:
    groups = {
        "lenet5, whole proof": "lenet5",
        "resnet-50, export": "resnet-50",
        "vgg-19, export": "vgg-19",
    }
    named = [(title, {"workload": workload}) for title, workload in groups.items()]
    bars("proof-memory", "peak_gb", "peak of a worker, GB", named)


def weights_copies() -> None:
    table = rows("weights-copies")
    workloads = list(dict.fromkeys(row["workload"] for row in table))
    moments = ("building", "built", "exporting")
    figure, panels = plt.subplots(1, len(workloads), figsize=(8, 3), sharey=True)
    for axes, workload in zip(panels, workloads):
        for row in (row for row in table if row["workload"] == workload):
            color, _ = STYLE[row["adapter"]]
            for place, moment in enumerate(moments):
                at = place + 0.2 * (list(STYLE).index(row["adapter"]) - 1.5)
                label = row["adapter"] if place == 0 else ""
                axes.bar(at, float(row[moment]), 0.18, color=color, label=label)
        axes.axhline(3, color="0.3", linewidth=0.8, linestyle="--")
        axes.set_xticks(range(len(moments)), moments)
        axes.set_title(workload, fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("copies of the weights, at most")
    panels[0].legend(frameon=False, ncols=4, loc="lower left", bbox_to_anchor=(0, 1.1))
    save(figure, "weights-copies")


def input_pipeline() -> None:
    table = rows("input-pipeline")
    titles = [f"{row['adapter']}, {row['workload']}" for row in table]
    figure, axes = plt.subplots(figsize=(8, 3))
    for place, row in enumerate(reversed(table)):
        color, marker = STYLE[row["adapter"]]
        ratio, low, high = (float(row[key]) for key in ("ratio", "ratio_low", "ratio_high"))
        axes.plot([low, high], [place, place], color=color)
        axes.plot(ratio, place, color=color, marker=marker, linestyle="")
    axes.set_xscale("log")
    axes.set_xlim(left=1)
    axes.set_yticks(range(len(titles)), titles[::-1])
    axes.set_xlabel(
        "batches drawn / batches trained on, per second (1: the pipeline limits training)"
    )
    axes.grid(axis="x", color="0.92")
    axes.set_axisbelow(True)
    save(figure, "input-pipeline")


def accuracy() -> None:
    table = rows("accuracy")
    workloads = list(dict.fromkeys(row["workload"] for row in table))
    figure, axes = plt.subplots(figsize=(8, 3.5))
    for row in table:
        color, marker = STYLE[row["adapter"]]
        at = workloads.index(row["workload"]) + 0.15 * (list(STYLE).index(row["adapter"]) - 1.5)
        axes.plot(at, float(row["accuracy_percent"]), color=color, marker=marker, linestyle="")
    published = {row["workload"]: row for row in rows("accuracy-published")}
    for place, workload in enumerate(workloads):
        low, high = (float(published[workload][key]) for key in ("lowest", "highest"))
        axes.fill_between([place - 0.4, place + 0.4], low, high, color="0.9", zorder=0)
    axes.set_xticks(range(len(workloads)), workloads)
    axes.set_ylabel("test accuracy, %")
    axes.set_xlabel("grey: what the paper reports")
    axes.grid(axis="y", color="0.95")
    axes.set_axisbelow(True)
    legend(axes, loc="lower left", bbox_to_anchor=(0, 1), ncols=4)
    save(figure, "accuracy")


def main() -> None:
    plt.rcParams.update({"svg.hashsalt": "dlb", "svg.fonttype": "none", "font.size": 9})
    for draw in (
        step_overhead,
        false_alarms,
        matrix,
        proof_memory,
        weights_copies,
        input_pipeline,
        accuracy,
    ):
        draw()


if __name__ == "__main__":
    main()
