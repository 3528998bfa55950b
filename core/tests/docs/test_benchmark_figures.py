"""What the benchmark pages say of their figures follows from the CSV files that they link."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from statistics import median

import pytest

from dlb_graph.workload.files import shipped_names

ROOT = next(folder for folder in Path(__file__).parents if (folder / "CITATION.cff").is_file())
EXPLANATION = ROOT / "docs" / "explanation"
FIGURES = EXPLANATION / "benchmarks"
ADAPTERS = {"torch", "tf", "mxnet", "chainer"}


def rows(name: str) -> list[dict[str, str]]:
    with (FIGURES / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def page(name: str) -> str:
    text = (EXPLANATION / f"{name}.md").read_text(encoding="utf-8")
    return " ".join(text.split())


def test_every_file_of_figures_is_linked_and_every_plot_has_one() -> None:
    linked = set(
        re.findall(r"\(benchmarks/([\w-]+\.(?:csv|svg))\)", page("benchmarks") + page("matrix"))
    )
    assert linked == {path.name for path in FIGURES.iterdir()}
    assert {f"{path.stem}.csv" for path in FIGURES.glob("*.svg")} <= linked


@pytest.mark.parametrize(("name", "of"), [("step-overhead", "benchmarks"), ("matrix", "matrix")])
def test_every_column_is_explained(name: str, of: str) -> None:
    columns = rows(name)[0].keys() - {"workload", "adapter"}
    assert {column for column in columns if f"`{column}`" not in page(of)} == set()


def test_the_overhead_of_a_step() -> None:
    ratios = [float(row["ratio"]) for row in rows("step-overhead")]
    reached = sum(ratio <= 1.02 for ratio in ratios)
    text = page("benchmarks")
    assert f"the median ratio is {median(ratios):.3f}, and {reached} of {len(ratios)} rows" in text
    high = [row for row in rows("step-overhead") if float(row["ratio"]) > 1.02]
    assert all(float(row["ratio_low"]) < 1.02 for row in high)
    again = rows("step-overhead-allocator")
    assert {(row["workload"], row["adapter"]) for row in again} == {
        (row["workload"], row["adapter"]) for row in high
    }
    after = sorted(float(row["ratio"]) for row in again)
    assert f"the {len(high)} rows above the aim fall to between {after[0]} and {after[-1]}" in text


def test_the_input_pipelines() -> None:
    table, text = rows("input-pipeline"), page("benchmarks")
    slowest = min(float(row["ratio"]) for row in table)
    assert f"at least {slowest:.0f} times as fast" in text
    assert f"waited for a batch {max(float(row['waits_percent']) for row in table)}%" in text


def test_the_copies_of_the_weights_are_at_most_three() -> None:
    moments = ("building", "built", "exporting")
    assert all(float(row[moment]) <= 3 for row in rows("weights-copies") for moment in moments)


def test_the_accuracies() -> None:
    means: dict[str, dict[str, list[float]]] = {}
    for row in rows("accuracy"):
        by_adapter = means.setdefault(row["workload"], {})
        by_adapter.setdefault(row["adapter"], []).append(float(row["accuracy_percent"]))
    for workload, by_adapter in means.items():
        assert by_adapter.keys() == ADAPTERS
        of_adapters = [sum(each) / len(each) for each in by_adapter.values()]
        apart = max(of_adapters) - min(of_adapters)
        (stated,) = re.findall(
            rf"\| `{workload}` \| [\d,]+ \| \d+ \| ([\d.]+) \|", page("benchmarks")
        )
        assert abs(apart - float(stated)) < 0.006
    assert {row["workload"] for row in rows("accuracy-published")} == means.keys()


def test_the_matrix_has_every_workload_on_every_adapter() -> None:
    table = rows("matrix")
    pairs = {(row["workload"], row["adapter"]) for row in table}
    assert pairs == {(name, adapter) for name in shipped_names() for adapter in ADAPTERS}
    assert {row["proof"] for row in table} == {"proven"}
    assert f"All {len(shipped_names())} workloads" in page("matrix")
    assert f"{len(table)} proofs" in page("matrix")


def test_which_distances_of_the_matrix_are_above_the_aim() -> None:
    columns = ("forward", "isolated_layers", "gradients", "update")
    above = {
        row["workload"]: max(float(row[column]) for column in columns)
        for row in rows("matrix")
        if max(float(row[column]) for column in columns) > 1e-12
    }
    assert above.keys() == {"inception-v3", "resnet-50"}
    largest = max(
        float(row[column])
        for row in rows("matrix")
        for column in columns
        if row["workload"] == "inception-v3"
    )
    assert f"`inception-v3` with up to {largest:.1e}" in page("matrix")


def test_a_report_over_many_results() -> None:
    first, again = rows("report")
    text = page("benchmarks")
    assert f"the index of the folder: {first['seconds']} seconds" in text
    assert f"The next one takes {again['seconds']} seconds" in text
    assert float(first["seconds"]) < 20 and int(first["memory_mb"]) < 1000
