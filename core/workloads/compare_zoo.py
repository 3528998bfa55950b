"""Where our networks differ in structure from the small zoo models in the onnx package.

``python core/workloads/compare_zoo.py``; takes minutes and some 4 GB.
"""

from __future__ import annotations

from pathlib import Path

import onnx

from dlb.graph.canonical import canonical_graph
from dlb.graph.structure import compare_structure
from dlb.workload import files
from dlb.workload.initial import initial_weights

ZOO = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
PAIRS = {
    "alexnet": "light_bvlc_alexnet",
    "googlenet": "light_inception_v1",
    "resnet-50": "light_resnet50",
    "vgg-19": "light_vgg19",
}


def main() -> None:
    for ours, theirs in PAIRS.items():
        model = files.load(ours).model
        canonical = canonical_graph(model, initial_weights(model, 0))
        found = compare_structure(canonical, onnx.load(str(ZOO / f"{theirs}.onnx")))
        print(f"{ours} and {theirs}: {len(found.differences)} differences")
        for one in found.differences:
            where = f"layer '{one.layer}'" if one.layer else f"node '{one.node}'"
            print(f"  {where}: {one.what}: ours {one.expected}, the zoo's {one.found}")


if __name__ == "__main__":
    main()
