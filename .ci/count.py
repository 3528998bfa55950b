"""Add up the tests that pytest reported, one JUnit file an environment; fail when there are none.

Prints the seconds of each suite, those of the slowest tests, and which tests failed and why, in a line each."""

import sys
from pathlib import Path
from xml.etree import ElementTree

SLOWEST = 20

passed = failed = skipped = 0
rows, tests, failures = [], [], []
for path in sorted(Path(sys.argv[1]).glob("*.xml")):
    suite = ElementTree.parse(path).getroot().find("testsuite")
    total, wrong, left = (
        int(suite.get("tests")),
        int(suite.get("failures")) + int(suite.get("errors")),
        int(suite.get("skipped")),
    )
    rows.append((float(suite.get("time")), path.stem, total - wrong - left, wrong, left))
    passed, failed, skipped = passed + total - wrong - left, failed + wrong, skipped + left
    for case in suite.iter("testcase"):
        place = f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"
        tests.append((float(case.get("time", 0)), f"{path.stem}  {place}"))
        for bad in (*case.findall("failure"), *case.findall("error")):
            why = " ".join(bad.get("message", "").split())[:300]
            failures.append(f"FAILED {path.stem}  {place}: {why}")
for seconds, name, good, wrong, left in sorted(rows, reverse=True):
    print(f"{seconds:7.0f} s  {name}: {good} passed, {wrong} failed, {left} skipped")
print(f"The slowest {SLOWEST}:")
for seconds, place in sorted(tests, reverse=True)[:SLOWEST]:
    print(f"{seconds:7.1f} s  {place}")
print(*failures, sep="\n", end="\n" if failures else "")
print(f"{passed} passed, {failed} failed, {skipped} skipped")
sys.exit(0 if passed and not failed else 1)
