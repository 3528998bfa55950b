"""Writes the workloads that come with dlb: ``python core/workloads/make.py``.

The files in ``graph/src/dlb_graph/workload/shipped`` are what is read and hashed; what repeats in them is
written down once here. ``lenet5`` is written by hand.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dlb_graph import workload as W
from dlb_graph.workload.files import check, shipped_folder, to_document
from networks import WORKLOADS


def text_of(workload: W.Workload) -> str:
    """A workload as TOML, a line for each layer."""
    document = to_document(workload)
    nodes = document["model"].pop("nodes")
    tables = {name: held for name, held in document.items() if isinstance(held, dict)}
    plain = {name: held for name, held in document.items() if name not in tables}
    lines = [f"{name} = {_value(held)}" for name, held in plain.items()]
    for name, table in tables.items():
        lines += ["", f"[{name}]"]
        lines += [f"{key} = {_value(held)}" for key, held in table.items()]
    lines += ["nodes = [", *(f"  {_value(node)}," for node in nodes), "]", ""]
    return "\n".join(lines)


def _value(held: Any) -> str:
    if isinstance(held, dict):
        return "{ " + ", ".join(f"{key} = {_value(inner)}" for key, inner in held.items()) + " }"
    if isinstance(held, (list, tuple)):
        return "[" + ", ".join(map(_value, held)) + "]"
    # Strings, booleans and numbers are written alike in TOML and JSON.
    return json.dumps(held, ensure_ascii=False)


def main() -> None:
    for workload in WORKLOADS:
        check(workload, workload.name)
        path = Path(str(shipped_folder())) / f"{workload.name}.toml"
        path.write_text(text_of(workload), encoding="utf-8")
        print(path.name)


if __name__ == "__main__":
    main()
