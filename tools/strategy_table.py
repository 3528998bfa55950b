"""The table of strategies and cases, from runs of the conformance suite.

    pytest --pyargs dlb_conformance --adapter torch -k test_strategies --junitxml torch.xml
    python tools/strategy_table.py torch.xml tf.xml ...

prints Markdown: of each case, how many numbers of workers passed, of how many. A dash: it is not claimed.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from xml.etree import ElementTree

NAME = re.compile(r"test_workers_are_one_worker\[([a-z_0-9]+)-([a-z_]+)-(\d+)\]")


def main(files: list[str]) -> None:
    cells: dict[tuple[str, str], list[bool | None]] = defaultdict(list)
    for file in files:
        for test in ElementTree.parse(file).iter("testcase"):
            found = NAME.fullmatch(test.get("name", ""))
            if found:
                passed = test.find("failure") is None and test.find("error") is None
                claimed = test.find("skipped") is None
                cells[found[1], found[2]].append(passed if claimed else None)
    strategies = list(dict.fromkeys(strategy for strategy, _ in cells))
    print("| case | " + " | ".join(f"`{name}`" for name in strategies) + " |")
    print("|---|" + "--:|" * len(strategies))
    for case in dict.fromkeys(case for _, case in cells):
        row = [cells[strategy, case] for strategy in strategies]
        told = ["-" if None in each else f"{sum(map(bool, each))} of {len(each)}" for each in row]
        print(f"| `{case}` | " + " | ".join(told) + " |")


if __name__ == "__main__":
    main(sys.argv[1:])
