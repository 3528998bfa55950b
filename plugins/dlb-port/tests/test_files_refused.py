"""``dlb diff A.onnx B.onnx`` at the command line: exit status, one line for each bad request."""

from __future__ import annotations

import json
import os
import pickle
import struct
import zipfile

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from dlb import cli

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
W = np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32)


def model(*, inputs=(("x", FLOAT, ["N", 4]),), outputs=("y",), nodes=None, weights=None, opset=17):
    """One matrix product, unless told otherwise."""
    graph = helper.make_graph(
        nodes or [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")],
        "g",
        [helper.make_tensor_value_info(*each) for each in inputs],
        [helper.make_tensor_value_info(name, FLOAT, ["A", "B"]) for name in outputs],
        [numpy_helper.from_array(a, n) for n, a in ({"w": W} | (weights or {})).items()],
    )
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("ai.example", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8, producer_name="test")


def looked_up(rows=5):
    nodes = [helper.make_node("Gather", ["t", "i"], ["y"])]
    table = {"t": np.ones((rows, 2), np.float32)}
    return model(inputs=[("i", INT64, ["N"])], nodes=nodes, weights=table)


@pytest.fixture
def verify(tmp_path, monkeypatch, capfd):
    """Runs the command on two files; their status, output and complaint."""
    monkeypatch.chdir(tmp_path)

    def run(first, second=None, *words):
        for name, content in (("a.onnx", first), ("b.onnx", first if second is None else second)):
            if content is not ...:
                data = content if isinstance(content, bytes) else content.SerializeToString()
                (tmp_path / name).write_bytes(data)
        capfd.readouterr()
        status = cli.call(["diff", "a.onnx", "b.onnx", *map(str, words)])
        out, err = capfd.readouterr()
        assert "Traceback" not in out + err and "Warning" not in err
        return status, out, err

    return run


def refused(result, *parts):
    status, out, err = result
    assert status == 2, (status, out, err)
    assert out == ""
    assert err.startswith("dlb: ") and err.count("\n") == 1, err
    assert "a fault of dlb" not in err
    for part in parts:
        assert part in err, err


# --- what it says ------------------------------------------------------------------------------


def test_files_that_compute_the_same(verify):
    status, out, err = verify(model())
    assert (status, err) == (0, "")
    assert "a.onnx and b.onnx: proven" in out and "a.onnx: test, opset 17" in out
    assert "forward float64" in out


def test_files_that_do_not(verify):
    other = model(weights={"w": W + np.float32(1e-6)})
    status, out, err = verify(model(), other)
    assert (status, err) == (1, "")
    assert "a.onnx and b.onnx: deviates" in out and "MatMul 'product'" in out


def test_the_one_document(verify):
    status, out, _ = verify(model(), model(weights={"w": np.full_like(W, np.nan)}), "--json")
    document = json.loads(out)
    assert status == 1
    assert document["proven"] is False and document["proof"] == "deviates"
    assert document["files"] == ["a.onnx", "b.onnx"]
    words = {one["check"]: one["verdict"] for one in document["certificate"]["checks"]}
    assert words["weights"] == words["forward float64"] == words["layers"] == "failed"
    status, out, _ = verify(model(), None, "--json", "--seed", 7)
    assert status == 0 and json.loads(out)["certificate"]["seed"] == 7


def test_how_much_is_shown(verify):
    assert verify(model(), None, "-q") == (0, "a.onnx and b.onnx: proven\n", "")
    other = model(weights={"w": W + np.float32(1e-6)})
    status, out, err = verify(model(), other, "--quiet")
    first, answer = out.splitlines()
    assert (status, answer, err) == (1, "a.onnx and b.onnx: deviates", "")
    assert first.startswith("b.onnx differs first in weights: 16 of 16 elements of 'w'")
    _, plain, _ = verify(model(), other)
    _, more, _ = verify(model(), other, "-v")
    assert "forward float64: failed" not in plain and "forward float64: failed" in more
    assert json.loads(verify(model(), None, "-q", "--json")[1])["answer"].endswith(": proven")
    status, out, err = verify(model(), None, "-q", "-v")
    assert (status, out) == (2, "") and "--quiet excludes --verbose and --details" in err
    assert "weights" in verify(model(), None)[1], "what one command was asked is not the next one's"


def test_an_error_is_a_document_too(verify):
    status, out, err = verify(b"", None, "--json")
    assert status == 2 and json.loads(out)["exit_status"] == 2 and "empty" in err


def test_files_of_one_name_are_told_apart(tmp_path, verify):
    verify(model())
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "m.onnx").write_bytes(model().SerializeToString())
    assert cli.call(["diff", "one/m.onnx", "two/m.onnx"]) == 0


# --- what is no model --------------------------------------------------------------------------

GOOD = model().SerializeToString()
NO_MODELS = {
    "empty": (b"", "empty"),
    "random": (np.random.default_rng(0).bytes(5000), "not an ONNX model"),
    "zeros": (bytes(100), "not an ONNX model"),
    "text": (b"not a model\n" * 50, "not an ONNX model"),
    "a zip": (b"PK\x03\x04" * 100, "not an ONNX model"),
    "a pickle": (pickle.dumps({"a": 1}), "not an ONNX model"),
    **{f"truncated at {at}": (GOOD[: int(len(GOOD) * at)], "b.onnx") for at in (0.2, 0.5, 0.9)},
    "names that are no text": (GOOD.replace(b"product", b"produ\xfc\xfc"), "is no text"),
    "nothing but a header": (onnx.ModelProto(ir_version=8).SerializeToString(), "not an ONNX"),
}


@pytest.mark.parametrize("kind", NO_MODELS)
def test_a_file_that_is_no_model(kind, verify):
    content, message = NO_MODELS[kind]
    refused(verify(model(), content), "b.onnx", message)
    refused(verify(content, model()), "a.onnx")


@pytest.mark.parametrize("at", range(1, len(GOOD), 7))
def test_a_truncated_file_never_ends_in_a_fault(at, verify):
    refused(verify(model(), GOOD[:at]))


def test_something_that_is_no_file(tmp_path, verify):
    refused(verify(model(), ...), "b.onnx: No such file")
    (tmp_path / "b.onnx").mkdir()
    refused(verify(model(), ...), "b.onnx: not a file")
    (tmp_path / "b.onnx").rmdir()
    os.mkfifo(tmp_path / "b.onnx")
    refused(verify(model(), ...), "b.onnx: not a file")


def test_a_file_that_is_too_large(tmp_path, verify):
    with (tmp_path / "b.onnx").open("wb") as file:
        file.truncate(5 << 30)
    refused(verify(model(), ...), "b.onnx: 5368709120 bytes", "at most")


def test_options_are_of_files(tmp_path, verify, capfd):
    verify(model())
    for words, message in {
        ("a.onnx", "--input", "x.npz"): "Missing argument",
        ("a.onnx", "b.onnx", "--on", "torch"): "No such option",
        ("a.onnx", "b.onnx", "--dtype", "float64"): "No such option",
        ("a.onnx", "b.onnx", "c.onnx"): "unexpected extra argument",
        ("a.onnx", "b.onnx", "--seed", "-1"): "--seed",
    }.items():
        capfd.readouterr()
        assert cli.call(["diff", *words]) == 2
        assert message in capfd.readouterr().err


# --- models that cannot be read ----------------------------------------------------------------


def with_node(**given):
    return model(nodes=[helper.make_node(inputs=["x", "w"], outputs=["y"], **given)])


def without_opset():
    made = model()
    del made.opset_import[:]
    return made


def cut_short():
    made = model()
    made.graph.initializer[0].raw_data = b"\0" * 60
    return made


def enormous():
    made = model()
    made.graph.initializer[0].dims[:] = [1 << 40, 1 << 20]
    return made


def sequence():
    made = model()
    made.graph.input[0].CopyFrom(helper.make_tensor_sequence_value_info("x", FLOAT, None))
    return made


def of_text():
    made = model()
    made.graph.input[0].type.tensor_type.elem_type = TensorProto.STRING
    return made


def cyclic():
    nodes = [helper.make_node("Add", ["x", "z"], ["y"]), helper.make_node("Neg", ["y"], ["z"])]
    return model(nodes=nodes)


def reads_nothing():
    return model(nodes=[helper.make_node("MatMul", ["x", "gone"], ["y"])])


def of_a_function_within():
    made = with_node(op_type="Own", name="mine", domain="ai.example")
    body = [helper.make_node("Foreign", ["a", "b"], ["c"], name="inner", domain="ai.other")]
    made.functions.append(
        helper.make_function("ai.example", "Own", ["a", "b"], ["c"], body, made.opset_import)
    )
    return made


UNREADABLE = {
    "operator set of the future": (model(opset=999), "operator set 999"),
    "operator set of the past": (model(opset=1), "operator set 1;"),
    "no operator set": (without_opset(), "operator set"),
    "unknown operator": (with_node(op_type="Reluctant", name="odd"), "node 'odd' is Reluctant"),
    "operator of another domain": (
        with_node(op_type="Magic", name="odd", domain="ai.example"),
        "node 'odd' is ai.example::Magic",
    ),
    "one within a function": (of_a_function_within(), "node 'inner' is ai.other::Foreign"),
    "random numbers": (
        model(nodes=[helper.make_node("RandomNormalLike", ["x"], ["y"], name="dice")]),
        "node 'dice' (RandomNormalLike) draws random numbers",
    ),
    "a part without a name": (
        model(nodes=[helper.make_node("Split", ["x"], ["y", ""], axis=1, name="halves")]),
        "node 'halves' (Split) has a part without a name",
    ),
    "weights cut short": (cut_short(), "weight 'w'"),
    "weights that are not there": (enormous(), "weight 'w'"),
    "a sequence": (sequence(), "'x' is no tensor"),
    "text": (of_text(), "'x' is no tensor"),
    "a cycle": (cyclic(), "not a valid ONNX model"),
    "a value that is not there": (reads_nothing(), "not a valid ONNX model"),
}


@pytest.mark.parametrize("kind", UNREADABLE)
def test_a_model_that_cannot_be_read(kind, verify):
    bad, message = UNREADABLE[kind]
    refused(verify(model(), bad), "b.onnx: ", message)


def with_function(*operators):
    made = with_node(op_type="Own", name="mine", domain="ai.example")
    body = [helper.make_node("MatMul", ["a", "b"], ["m0"])]
    body += [helper.make_node(kind, [f"m{k}"], [f"m{k + 1}"]) for k, kind in enumerate(operators)]
    end = f"m{len(operators)}"
    made.functions.append(
        helper.make_function("ai.example", "Own", ["a", "b"], [end], body, made.opset_import)
    )
    return made


def test_functions_of_its_own_are_read(verify):
    assert verify(model(), with_function())[0] == 0
    assert verify(with_function(), with_function("Relu"))[0] == 1


def test_a_label_that_does_not_fit_is_read_as_what_does(verify):
    """As MXNet labels: the newest set, whatever was written."""
    nodes = [helper.make_node("ReduceMean", ["x"], ["y"], axes=[1], keepdims=1)]
    status, out, _ = verify(model(nodes=nodes), model(nodes=nodes, opset=18))
    assert status == 0 and "b.onnx: test, opset 18, read as 17" in out


# --- weights in other files --------------------------------------------------------------------


def outside(place, length=str(W.nbytes), offset="0"):
    made = model()
    (tensor,) = made.graph.initializer
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", place), ("offset", offset), ("length", length)):
        tensor.external_data.add(key=key, value=value)
    return made


@pytest.mark.parametrize(
    "place",
    ["../weights.bin", "/etc/hostname", "link.bin", "folder/../../w", "..\\w.bin", "C:\\w", ""],
)
def test_weights_outside_the_folder_are_refused(place, tmp_path, verify, monkeypatch):
    (tmp_path / "weights.bin").write_bytes(W.tobytes())
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "link.bin").symlink_to(tmp_path / "weights.bin")
    for name, made in (("a", model()), ("b", outside(place))):
        (inside / f"{name}.onnx").write_bytes(made.SerializeToString())
    monkeypatch.chdir(inside)
    (tmp_path / "a.onnx").unlink(missing_ok=True)
    refused(in_folder(verify, inside), "weight 'w' is kept", "outside the model's folder")


def in_folder(verify, folder):
    os.chdir(folder)
    for name in ("a.onnx", "b.onnx"):
        (folder.parent / name).write_bytes((folder / name).read_bytes())
    return verify(..., ...)


def test_weights_beside_the_file_are_read(tmp_path, verify):
    (tmp_path / "weights.bin").write_bytes(bytes(8) + W.tobytes())
    assert verify(model(), outside("weights.bin", offset="8"))[0] == 0
    (tmp_path / "weights.bin").write_bytes(bytes(8) + (2 * W).tobytes())
    assert verify(model(), outside("weights.bin", offset="8"))[0] == 1


@pytest.mark.parametrize(
    ("length", "offset"),
    [("99999999999", "0"), ("64", "-8"), ("64", "4096"), ("x", "0"), ("60", "0")],
)
def test_weights_that_are_not_in_their_file(length, offset, tmp_path, verify):
    (tmp_path / "weights.bin").write_bytes(W.tobytes())
    refused(verify(model(), outside("weights.bin", length, offset)), "weight 'w'")
    refused(verify(model(), outside("none.bin")), "weight 'w'", "put that file next to")


# --- models that read different things ---------------------------------------------------------

X = ("x", FLOAT, ["N", 4])
TWO = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Add", ["h", "z"], ["y"])]


def two_inputs(*second):
    return model(inputs=[X, ("z", *second)], nodes=TWO)


def two_outputs():
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"]), helper.make_node("Neg", ["x"], ["z"])]
    return model(outputs=("y", "z"), nodes=nodes)


UNLIKE = {
    "more inputs": (model(), two_inputs(FLOAT, ["N", 4]), "a.onnx has 1 inputs", "b.onnx 2"),
    "more outputs": (two_outputs(), model(), "a.onnx has 2 outputs"),
    "another size": (
        model(),
        model(inputs=[("x", FLOAT, [3, 5])], weights={"w": W[[0, 1, 2, 3, 0]]}),
        "shapes do not match",
    ),
    "another rank": (model(), model(inputs=[("x", FLOAT, [4])]), "shapes do not match"),
    "another batch": (
        model(inputs=[("x", FLOAT, [2, 4])]),
        model(inputs=[("x", FLOAT, [3, 4])]),
        "'x' [2, 4] of a.onnx, 'x' [3, 4] of b.onnx: shapes do not match",
    ),
    "integers": (
        model(),
        model(
            inputs=[("x", INT64, ["N", 4])],
            nodes=[
                helper.make_node("Cast", ["x"], ["r"], to=FLOAT),
                helper.make_node("MatMul", ["r", "w"], ["y"]),
            ],
        ),
        "of float32 in a.onnx and 'x' of int64",
    ),
    "open sizes": (
        *[model(inputs=[("x", FLOAT, ["N", "M"])])] * 2,
        "axis 1 is left open",
        "--input",
    ),
    "no shape": (*[model(inputs=[("x", FLOAT, None)])] * 2, "neither file says its shape"),
    "enormous": (*[model(inputs=[("x", FLOAT, [1 << 30, 4])])] * 2, "at most"),
}


@pytest.mark.parametrize("kind", UNLIKE)
def test_models_that_are_not_fed_alike(kind, verify):
    first, second, *message = UNLIKE[kind]
    refused(verify(first, second), *message)


def test_open_sizes_that_something_settles(verify, tmp_path):
    open_one = model(inputs=[("x", FLOAT, ["N", "M"])])
    assert verify(open_one, model(inputs=[("x", FLOAT, [2, 4])]))[0] == 0
    np.savez(tmp_path / "x.npz", x=np.ones((7, 4), np.float32))
    assert verify(open_one, None, "--input", "x.npz")[0] == 0
    # The second input says what the first one's open size is.
    pair = model(inputs=[("x", FLOAT, ["N", "M"]), ("z", FLOAT, ["M"])], nodes=TWO)
    fixed = model(inputs=[("x", FLOAT, ["N", "M"]), ("z", FLOAT, [4])], nodes=TWO)
    assert verify(pair, fixed)[0] == 0


# --- inputs that are given ---------------------------------------------------------------------

FITTING = np.ones((2, 4), np.float32)


def npz(path, **arrays):
    np.savez(path, **arrays)


GIVEN = {
    "not there": (lambda path: None, "no such file"),
    "a folder": (lambda path: path.mkdir(), "not an .npz file"),
    "text": (lambda path: path.write_text("hello"), "not an .npz file"),
    "one array": (lambda path: path.write_bytes(b"\x93NUMPY\x01\x00v\x00{}"), "not an .npz file"),
    "damaged": (lambda path: damaged(path), "x.npz: "),
    "text inside": (lambda path: zipped(path, b"hello"), "x.npz: "),
    "no array file": (lambda path: zipped(path, b"hello", "x"), "no array of numbers"),
    "a shape past its numbers": (lambda path: zipped(path, header("(2, 400000)")), "x.npz: "),
    "an enormous shape": (lambda path: zipped(path, header("(1000000000000000,)")), "x.npz: "),
    "nothing": (lambda path: npz(path), "holds nothing; the models read x"),
    "another name": (lambda path: npz(path, y=FITTING), "holds y; the models read x"),
    "one too many": (lambda path: npz(path, x=FITTING, y=FITTING), "holds x, y; the models read x"),
    "float64": (lambda path: npz(path, x=FITTING.astype(float)), "'x' is of float64; the models read float32"),
    "integers": (lambda path: npz(path, x=FITTING.astype(int)), "'x' is of int64"),
    "text array": (lambda path: npz(path, x=np.array(["a"])), "no array of numbers"),
    "complex": (lambda path: npz(path, x=FITTING.astype(complex)), "no array of numbers"),
    "a shape": (lambda path: npz(path, x=np.ones((2, 5), np.float32)), "shapes do not match; given: [2, 5]"),
    "a rank": (lambda path: npz(path, x=np.ones(4, np.float32)), "shapes do not match; given: [4]"),
    "no samples": (lambda path: npz(path, x=FITTING[:0]), "no numbers"),
    "NaN": (lambda path: npz(path, x=FITTING * np.nan), "holds a NaN or an infinity"),
    "infinity": (lambda path: npz(path, x=FITTING * np.inf), "holds a NaN or an infinity"),
    "objects": (lambda path: npz(path, x=np.array([print], object)), "file of plain numbers"),
}  # fmt: skip


def header(shape):
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() + bytes(32)


def zipped(path, content, name="x.npy"):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, content)


def damaged(path):
    np.savez_compressed(path, x=np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32))
    content = bytearray(path.read_bytes())
    content[200:400] = bytes(200)
    path.write_bytes(content)


@pytest.mark.parametrize("kind", GIVEN)
def test_inputs_that_do_not_fit(kind, verify, tmp_path):
    make, message = GIVEN[kind]
    make(tmp_path / "x.npz")
    refused(verify(model(), None, "--input", "x.npz"), message)


def test_a_pickle_in_the_inputs_is_never_run(verify, tmp_path):
    class Trap:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "sprung"),))

    np.savez(tmp_path / "x.npz", x=np.array([Trap()], object))
    refused(verify(model(), None, "--input", "x.npz"), "plain numbers")
    assert not (tmp_path / "sprung").exists()


def test_indices_that_are_given(verify, tmp_path):
    assert verify(looked_up())[0] == 0
    npz(tmp_path / "x.npz", i=np.array([0, 4, -5]))
    assert verify(looked_up(), None, "--input", "x.npz")[0] == 0
    npz(tmp_path / "x.npz", i=np.array([0, 5]))
    refused(
        verify(looked_up(), None, "--input", "x.npz"), "holds 0 to 5; the models look up 0 to 4"
    )


def test_external_weights_that_do_not_fit_their_shape_are_refused(tmp_path, verify):
    large = np.ones((200, 100), np.float32)
    made = model()
    (tensor,) = made.graph.initializer
    tensor.CopyFrom(TensorProto(name="w", dims=[200, 200], data_type=TensorProto.FLOAT))
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="w.bin")
    (tmp_path / "w.bin").write_bytes(large.tobytes())
    refused(verify(model(), made), "weight 'w': 80000 bytes are no [200, 200] of float32")


def test_a_function_names_no_file_elsewhere(tmp_path, verify):
    """Its tensors are refused before any file is opened: load_model checks those of the graph alone."""
    made = with_function()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)  # to open it would wait for ever
    tensor = TensorProto(name="c", dims=[1], data_type=TensorProto.FLOAT)
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=str(pipe))
    constant = made.functions[0].node.add(op_type="Constant", output=["unused"])
    constant.attribute.append(helper.make_attribute("value", tensor))
    refused(verify(model(), made), "a function of its own keeps numbers in another file")
