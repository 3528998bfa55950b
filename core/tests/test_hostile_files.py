"""Files with odd content: a result, or one line and exit status 2; never a fault of dlb.

``--hypothesis-profile=explore`` tries many more.
"""

from __future__ import annotations

import io
import json
import shutil
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tomli_w
from exported_models import EXPORTED_FILES
from hostile_strategies import altered, damaged
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from dlb import cli
from dlb.errors import DlbError
from dlb_graph.pairs.input_arrays import read_arrays
from dlb_graph.workload import files
from dlb_port.weight_map import read_map

several = settings(
    # The profile of the tests is bounded; the other decides for itself.
    max_examples=60 if settings.default.derandomize else 2000,  # type: ignore[union-attr]
    suppress_health_check=list(HealthCheck),
)
few = settings(several, max_examples=several.max_examples // 3)
WRITTEN = Path(__file__).parent / "records" / "written"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("hostile")
    shutil.copytree(WRITTEN, made, dirs_exist_ok=True)
    return made


def call(*words: str) -> int:
    """The exit status of a command, which may be a result or one line that says what is wrong."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = cli.call(list(words))
    said = err.getvalue()
    assert "a fault of dlb" not in said, said
    assert "Traceback" not in said
    assert status in (0, 1, 2), said
    if status == 2:
        assert len(said.splitlines()) == 1, said
    return status


def is_one_line(error: DlbError) -> bool:
    return error.exit_status == 2 and len(str(error).splitlines()) == 1


# --- workloads -----------------------------------------------------------------------------------

WORKLOADS = [files.to_document(files.load(name)) for name in ("lenet5", "ptb-lstm", "gpt-small")]


@several
@given(data=st.data())
def test_a_workload(data: st.DataObject, folder: Path) -> None:
    document = data.draw(altered(data.draw(st.sampled_from(WORKLOADS))))
    path = folder / "odd.toml"
    try:
        path.write_text(tomli_w.dumps(_without_none(document)), encoding="utf-8")
    except (TypeError, ValueError, OverflowError, UnicodeEncodeError):
        return  # TOML cannot hold it
    call("show", str(path))


@few
@given(data=st.data())
def test_a_workload_of_other_bytes(data: st.DataObject, folder: Path) -> None:
    content = tomli_w.dumps(data.draw(st.sampled_from(WORKLOADS))).encode()
    path = folder / "bytes.toml"
    path.write_bytes(data.draw(damaged(content)))
    call("show", str(path))


@several
@given(data=st.data())
def test_changes_of_a_workload(data: st.DataObject) -> None:
    field = data.draw(st.text("abcdefgilmnoprst._[]0", max_size=30))
    known = st.sampled_from(
        ["optimizer", "optimizer.type", "model.nodes.conv1.layer.kernel", "data.mean", "batch_size"]
    )
    name = data.draw(known | st.just(field))
    value = data.draw(st.text(max_size=30) | st.sampled_from(["[[", "1e400", "{a=1}", "nan", "-1"]))
    call("show", "lenet5", f"--set={name}={value}")


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_none(item) for item in value if item is not None]
    return value


# --- records and certificates --------------------------------------------------------------------


def _documents() -> dict[str, Any]:
    """Records and certificates that commands wrote."""
    return {path.stem: json.loads(path.read_bytes()) for path in WRITTEN.glob("*.json")}


DOCUMENTS = _documents()


@several
@given(data=st.data())
def test_a_record_or_certificate(data: st.DataObject, folder: Path) -> None:
    document = data.draw(altered(DOCUMENTS[data.draw(st.sampled_from(sorted(DOCUMENTS)))]))
    path = folder / "odd.json"
    path.write_text(json.dumps(document))
    call(data.draw(st.sampled_from(["show", "explain"])), str(path))


@pytest.mark.parametrize(
    ("name", "place", "value", "status"),
    [
        ("workload", ("divergences", 0, "perturbed", 0), [], 2),
        ("record", ("data",), {}, 0),
        ("record", ("series",), "", 2),
        ("record", ("certificate",), "../../x", 2),
        ("record", ("machine",), {"available_cores": "two", "memory_bytes": None}, 0),
        ("record", ("worker",), {"packages": 3, "build": []}, 0),
        ("workload", ("failures",), None, 2),
    ],
)
def test_what_was_found(
    name: str, place: tuple[str | int, ...], value: Any, status: int, folder: Path
) -> None:
    """Each ended in a fault of dlb once."""
    document = json.loads(json.dumps(DOCUMENTS[name]))
    container = document
    for key in place[:-1]:
        container = container[key]
    container[place[-1]] = value
    path = folder / "found.json"
    path.write_text(json.dumps(document))
    assert call("explain" if name == "workload" else "show", str(path)) == status


@few
@given(data=st.data())
def test_a_record_of_other_bytes(data: st.DataObject, folder: Path) -> None:
    content = json.dumps(DOCUMENTS[data.draw(st.sampled_from(sorted(DOCUMENTS)))]).encode()
    path = folder / "bytes.json"
    path.write_bytes(data.draw(damaged(content)))
    call(data.draw(st.sampled_from(["show", "explain"])), str(path))


# --- ONNX files ----------------------------------------------------------------------------------

SMALL = [EXPORTED_FILES / f"{name}.onnx" for name in ("torch-tokens", "chainer-lenet")]


@few
@given(data=st.data())
def test_an_onnx_file_of_other_bytes(data: st.DataObject, folder: Path) -> None:
    original = data.draw(st.sampled_from(SMALL))
    path = folder / "bytes.onnx"
    path.write_bytes(data.draw(damaged(original.read_bytes())))
    call("show", str(path))
    call("diff", str(original), str(path))


@few
@given(data=st.data())
def test_an_onnx_file_with_odd_parts(data: st.DataObject, folder: Path) -> None:
    original = data.draw(st.sampled_from(SMALL))
    model = onnx.load(str(original))
    graph = model.graph
    for _ in range(data.draw(st.integers(1, 2))):
        what = data.draw(
            st.sampled_from(["sizes", "kind", "dims", "name", "node", "opset", "again"])
        )
        value = data.draw(st.sampled_from([*graph.input, *graph.output]))
        if what == "sizes":
            for axis in value.type.tensor_type.shape.dim:
                axis.dim_value = data.draw(st.sampled_from([-5, 0, 1, 3, 2**40]))
        elif what == "kind":
            value.type.tensor_type.elem_type = data.draw(st.integers(0, 30))
        elif what == "dims":
            tensor = data.draw(st.sampled_from(list(graph.initializer)))
            tensor.dims[:] = [data.draw(st.sampled_from([-1, 0, 1, 2**40])) for _ in tensor.dims]
        elif what == "name":
            node = data.draw(st.sampled_from(list(graph.node)))
            node.output[0] = data.draw(st.sampled_from(["", "input", "x\ny", graph.output[0].name]))
        elif what == "node":
            del graph.node[data.draw(st.integers(0, len(graph.node) - 1))]
        elif what == "opset":
            model.opset_import[0].version = data.draw(st.sampled_from([0, 1, 6, 12, 99]))
        else:
            graph.node.append(data.draw(st.sampled_from(list(graph.node))))
    path = folder / "parts.onnx"
    path.write_bytes(model.SerializeToString())
    call("show", str(path))
    call("diff", str(path), str(original))


# --- port maps and arrays ------------------------------------------------------------------------

MAP = {
    "models": {
        "torch": {"input": "NCHW"},
        "tf": {
            "input": "NHWC",
            "leave": ["a", "b"],
            "weights": [
                {"source": "conv.weight", "to": "conv/kernel", "transpose": [2, 3, 1, 0]},
                {"source": "fc.weight", "to": "fc/kernel", "reshape": [4, 3]},
            ],
        },
    }
}


@several
@example(document={"models": {"tf": {"input": "N" * 300}}})
@given(document=altered(MAP))
def test_a_port_map(document: Any, folder: Path) -> None:
    path = folder / "map.toml"
    try:
        path.write_text(tomli_w.dumps(_without_none(document)), encoding="utf-8")
    except (TypeError, ValueError, OverflowError, AttributeError, UnicodeEncodeError):
        return
    try:
        read_map(path, ["torch", "tf"])
    except DlbError as error:
        assert is_one_line(error)


@several
@given(data=st.data())
def test_arrays_of_other_bytes(data: st.DataObject, folder: Path) -> None:
    stream = io.BytesIO()
    store = data.draw(st.sampled_from([np.savez, np.savez_compressed]))
    store(stream, x=np.arange(12.0).reshape(3, 4), labels=np.arange(3))
    path = folder / "bytes.npz"
    path.write_bytes(data.draw(damaged(stream.getvalue())))
    try:
        read_arrays(path)
    except DlbError as error:
        assert is_one_line(error)
