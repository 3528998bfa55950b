"""ONNX's own backend tests on adapters: what passes, what dlb's layers do not cover, what fails.

    python benchmarks/onnx_backend.py torch tf mxnet chainer

Runs ``onnx.backend.test.BackendTest`` with ``dlb_port.onnx_backend``: the tests of single operators, the
simple models, those converted from PyTorch, and the networks of the model zoo that are in the onnx
package. Nothing is downloaded. Prints a table of counts, and the reasons of what is not covered.

Models compute in float32, as they do where they are timed. A test that fails so is run again in
float64: where it passes then, rounding decides it. It is counted as a failure all the same.

``-k TEXT`` runs the tests whose names match alone (a regular expression); ``--threads`` are those of
the adapter's process.

Ends with 1 when a test fails.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
import time
import unittest
import warnings
from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
from commands import told
from onnx.backend.test import BackendTest
from rich.console import Console
from rich.progress import track

import dlb_port

KINDS = {
    "OnnxBackendNodeModelTest": "operators",
    "OnnxBackendSimpleModelTest": "simple models",
    "OnnxBackendPyTorchConvertedModelTest": "converted from PyTorch, layers",
    "OnnxBackendPyTorchOperatorModelTest": "converted from PyTorch, operators",
    "OnnxBackendRealModelTest": "networks of the model zoo",
}
SHOWN = 12


def main() -> int:
    """Run, print, and tell by the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("adapters", nargs="+", metavar="ADAPTER")
    parser.add_argument("-k", default="", metavar="TEXT", help="only tests of matching names")
    parser.add_argument("--threads", type=int)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["ONNX_HOME"] = folder
        for adapter in asked.adapters:
            began = time.perf_counter()
            found[adapter] = run(adapter, asked.k, asked.threads)
            print(f"{adapter}: {time.perf_counter() - began:.0f} s", file=sys.stderr)
    print_counts(found)
    print_reasons(found[asked.adapters[0]], asked.adapters[0])
    failed = False
    for adapter, result in found.items():
        for test, text in (*result.failures, *result.errors):
            failed = True
            also = ", passes in float64" if test in result.rounded else ""
            print(f"\n{adapter}: fails{also}: {test}\n{text}")
    return int(failed)


class Result(unittest.TestResult):
    """Keeps what passed, too, and which of the failures pass in float64."""

    def __init__(self) -> None:
        super().__init__()
        self.passed: list[unittest.TestCase] = []
        self.rounded: list[unittest.TestCase] = []

    def addSuccess(self, test: unittest.TestCase) -> None:
        self.passed.append(test)


def run(adapter: str, matching: str, threads: int | None) -> Result:
    """Every test on one adapter, in one worker process; what fails, in float64 again."""
    result = _run(adapter, lambda name: re.search(matching, name) is not None, threads, None)
    failed = {test.id() for test, _ in result.failures}
    if failed:
        again = _run(adapter, failed.__contains__, threads, "float64")
        exact = {test.id() for test in again.passed}
        result.rounded = [test for test, _ in result.failures if test.id() in exact]
    return result


def _run(
    adapter: str, wanted: Callable[[str], bool], threads: int | None, dtype: str | None
) -> Result:
    backend = dlb_port.onnx_backend(adapter, threads=threads, dtype=dtype)
    # The runner would skip what is not compatible without a word; preparing it says why.
    backend.is_compatible = classmethod(lambda cls, *_: True)
    suite = BackendTest(backend, __name__).test_suite
    tests = [
        test for test in _tests(suite) if not test.id().endswith("_cuda") and wanted(test.id())
    ]
    result = Result()
    with np.errstate(all="ignore"):
        for test in track(tests, f"{adapter} {dtype or ''}", console=Console(stderr=True)):
            test.run(result)
    backend.worker.close()
    return result


def _tests(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
    for each in suite:
        if isinstance(each, unittest.TestSuite):
            yield from _tests(each)
        else:
            yield each


def print_counts(found: dict[str, Result]) -> None:
    """A row for each kind of tests, and for each adapter what passed."""
    first = next(iter(found.values()))
    print(f"| tests | in all | {' | '.join(found)} | not covered | failed | of them in float64 |")
    print(f"|---|---|{'---|' * len(found)}---|---|---|")
    for kind, title in KINDS.items():
        parts = {
            name: (
                _of(kind, result.passed),
                _of(kind, [test for test, _ in result.skipped]),
                _of(kind, [test for test, _ in (*result.failures, *result.errors)]),
                _of(kind, result.rounded),
            )
            for name, result in found.items()
        }
        passed, skipped, failed, rounded = zip(*parts.values())
        total = passed[0] + skipped[0] + failed[0]
        if total:
            print(
                f"| {title} | {total} | {' | '.join(map(str, passed))} | {_span(skipped)} "
                f"| {_span(failed)} | {_span(rounded)} |"
            )
    print(f"\n{first.testsRun} tests")


def _of(kind: str, tests: list[unittest.TestCase]) -> int:
    return sum(type(test).__name__ == kind for test in tests)


def _span(counts: tuple[int, ...]) -> str:
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low} to {high}"


def print_reasons(result: Result, adapter: str) -> None:
    """Why tests are not covered, without the names of nodes and values, the commonest first."""
    if not result.skipped:
        return
    reasons = Counter(
        re.sub(r"(node|input|output|layer)? ?'[^']*'( \[[^]]*\])?", r"\1", reason)
        for _, reason in result.skipped
    )
    print(f"\nNot covered, on {adapter}:\n\n| | |\n|---|---|")
    for reason, count in reasons.most_common(SHOWN):
        print(f"| {count} | {reason} |")
    rest = sum(reasons.values()) - sum(count for _, count in reasons.most_common(SHOWN))
    if rest:
        print(f"| {rest} | {len(reasons) - SHOWN} other reasons |")


if __name__ == "__main__":
    sys.exit(told(main))
