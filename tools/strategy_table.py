"""The table of strategies and cases, from runs of the conformance suite.

    pytest --pyargs dlb_conformance --adapter torch --long -k test_strategies --junitxml torch.xml
    python tools/strategy_table.py torch.xml tf.xml ...

prints Markdown: of each case, which numbers of workers passed. A dash: it is not claimed. Status 1 on failure.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from xml.etree import ElementTree

NAME = re.compile(r"test_workers_are_one_worker\[([a-z_0-9]+)-([a-z_]+)-(\d+)\]")


def main(files: list[str]) -> int:
    passed: dict[tuple[str, str], list[str]] = defaultdict(list)
    failed = []
    for file in files:
        for test in ElementTree.parse(file).iter("testcase"):
            found = NAME.fullmatch(test.get("name", ""))
            if not found:
                continue
            cell = passed[found[1], found[2]]
            if test.find("failure") is not None or test.find("error") is not None:
                failed.append(found[0])
            elif test.find("skipped") is None:
                cell.append(found[3])
    strategies = list(dict.fromkeys(strategy for strategy, _ in passed))
    print("| case | " + " | ".join(f"`{name}`" for name in strategies) + " |")
    print("|---|" + "---|" * len(strategies))
    for case in dict.fromkeys(case for _, case in passed):
        told = [", ".join(passed[strategy, case]) or "-" for strategy in strategies]
        print(f"| `{case}` | " + " | ".join(told) + " |")
    print(*failed, sep="\n", file=sys.stderr)
    return 1 if failed or not strategies else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
