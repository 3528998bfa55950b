"""Add up the tests that pytest reported, one JUnit file an environment; fail when there are none."""

import sys
from pathlib import Path
from xml.etree import ElementTree

passed = failed = skipped = 0
for path in sorted(Path(sys.argv[1]).glob("*.xml")):
    suite = ElementTree.parse(path).getroot().find("testsuite")
    total, bad, left = (
        int(suite.get("tests")),
        int(suite.get("failures")) + int(suite.get("errors")),
        int(suite.get("skipped")),
    )
    print(f"{path.stem}: {total - bad - left} passed, {bad} failed, {left} skipped")
    passed, failed, skipped = passed + total - bad - left, failed + bad, skipped + left
print(f"{passed} passed, {failed} failed, {skipped} skipped")
sys.exit(0 if passed and not failed else 1)
