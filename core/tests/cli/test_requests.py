"""Requests that cannot be carried out: status 2, one line that says what, where and what to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from dlb_process import Dlb

#: Options of ``dlb run`` and what the line must say.
OPTIONS: dict[str, tuple[list[object], tuple[str, ...]]] = {
    "unknown adapter": (["--on", "exampel"], ("'exampel'", "did you mean 'example'", "--from DIR")),
    "unknown environment": (["--on", "torch"], ("'torch'", "dlb env create torch", "--provision")),
    "unknown strategy": (
        ["--strategy", "example_snyc", "--workers", 2],
        ("'example_snyc'", "did you mean 'example_sync'"),
    ),
    "unknown variant": (
        ["--variant", "colour=red"],
        ("nothing offers 'colour'", "offered: example:layout=rows|columns"),
    ),
    "unknown value of a variant": (
        ["--variant", "layout=diagonal"],
        ("'example' offers no 'diagonal'", "example:layout=rows|columns"),
    ),
    "variant that the adapter lacks": (
        ["--variant", "example:compile=no"],
        ("nothing offers 'compile'", "offered: example:layout"),
    ),
    "variant of another adapter": (
        ["--variant", "torch:layout=columns"],
        ("torch", "not an adapter of this request", "example"),
    ),
    "variant twice": (
        ["--variant", "layout=rows", "--variant", "layout=columns"],
        ("give each choice once",),
    ),
    "variant without a value": (["--variant", "layout"], ("NAME=VALUE", "torch:compile=inductor")),
    "variant of no adapter": (["--variant", ":layout=rows"], ("ADAPTER:NAME=VALUE",)),
    "workers without strategy": (["--workers", 2], ("--workers 2", "dlb list strategies")),
    "workers without a sample": (
        ["--workers", 3, "--strategy", "example_sync", "--batch-size", 2],
        ("--batch-size 2", "3 workers"),
    ),
    "batch of none": (["--batch-size", 0], ("--batch-size is 0", "1 or more")),
    "negative batch": (["--batch-size", -1], ("--batch-size is -1",)),
    "batch above the data": (["--batch-size", 100000], ("100000", "training samples")),
    "no steps": (["--steps", 0], ("--steps is 0", "1 or more")),
    "negative steps": (["--steps", -5], ("--steps is -5",)),
    "warmup too long": (["--warmup", 20], ("--warmup is 20", "less than the 20 steps")),
    "negative warmup": (["--warmup", -1], ("--warmup is -1",)),
    "no threads": (["--threads", 0], ("--threads is 0",)),
    "no workers": (["--workers", 0], ("--workers is 0",)),
    "steps and epochs": (["--epochs", 1], ("--steps and --epochs exclude each other",)),
    "device": (["--device", "tpu"], ("'tpu'", "cpu", "dlb run --help")),
    "dtype": (["--dtype", "float16"], ("'float16'", "float64")),
    "input": (["--input", "disk"], ("'disk'", "pipeline")),
    "not a number": (["--batch-size", "many"], ("'many'", "--batch-size")),
    "seed": (["--seed", -1], ("--seed", "-1")),
    "no time": (["--timeout", 0], ("--timeout", "0")),
    "augmented in memory": (
        ["--input", "memory", "--set", "data.augmentation.flip=true"],
        ("--input memory", "data.augmentation", "--input pipeline"),
    ),
    "variable without a name": (["--variable", "=2"], ("--variable =2", "write NAME=VALUE")),
    "variable twice": (["--variable", "A=1", "--variable", "A=2"], ("--variable A", "twice")),
    "unknown option": (["--colour", "red"], ("--colour", "dlb run --help")),
}


@pytest.mark.parametrize(("options", "says"), OPTIONS.values(), ids=list(OPTIONS))
def test_option(dlb: Dlb, options: list[object], says: tuple[str, ...]) -> None:
    ended = dlb.run(*options)
    assert ended.status == 2
    assert all(word in ended.complaint for word in says), ended.complaint
    assert ended.out == "" and len(ended.err.splitlines()) == 1
    assert not list(dlb.out.glob("*.json"))


def test_steps_of_a_trajectory_are_called_what_the_option_is(dlb: Dlb) -> None:
    ended = dlb("verify", "lenet5", "--steps", 0)
    assert ended.status == 2 and "--steps is 0" in ended.complaint


def changed(old: str, new: str) -> tuple[str, str]:
    return old, new


#: A replacement in the small workload, and what the line must say besides the file's name.
WORKLOADS: dict[str, tuple[tuple[str, str], tuple[str, ...]]] = {
    "no flatten": (
        changed('{ name = "flatten", layer = { type = "flatten" } },', ""),
        ("layer 'fc1' (linear) cannot take shape [1, 28, 28]", "put a flatten before it"),
    ),
    "kernel too large": (
        changed('"relu"', '"max_pool", kernel = [2, 2], stride = [2, 2]'),
        ("layer 'relu1' (max_pool)", "[32]"),
    ),
    "unknown layer": (
        changed('"relu"', '"rleu"'),
        (
            "model.nodes.relu1.layer: unknown value 'rleu'; did you mean 'relu'",
            "max_pool, mul, pad,",
        ),
    ),
    "layer of a framework": (changed('"relu"', '"Conv2D"'), ("'Conv2D'; did you mean 'conv'",)),
    "field of a framework": (changed("out_features = 32", "units = 32"), ("mean 'out_features'",)),
    "no layer": (
        changed('{ type = "relu" }', "{}"),
        ("relu1.layer: missing field 'type'", "max_pool, mul, pad,"),
    ),
    "unknown field": (
        changed("out_features = 32", "out_feature = 32"),
        (
            "'out_feature'; did you mean 'out_features'",
            "fc1",
            "needs out_features and can have bias, ",
        ),
    ),
    "no field": (
        changed("learning_rate = 0.05", ""),
        (
            "optimizer: missing field 'learning_rate'",
            "needs learning_rate and can have weight_decay",
        ),
    ),
    "unknown initialiser": (
        changed("out_features = 32", 'out_features = 32, init = { type = "norml" }'),
        ("fc1.layer.init: unknown value 'norml'; did you mean 'normal'", "fill, normal, "),
    ),
    "unknown kind": (changed("input = { ", 'input = { kind = "text", '), ("known: index, real",)),
    "unknown loss": (
        changed("[model]", '[loss]\ntype = "mse"\n[model]'),
        ("mse", "known: absolute_error, binary_cross_entropy, ctc, huber, softmax_cross_entropy, "),
    ),
    "all smoothed": (
        changed(
            "[model]", '[loss]\ntype = "softmax_cross_entropy"\nlabel_smoothing = 1.0\n[model]'
        ),
        ("label_smoothing = 1.0", "below 1"),
    ),
    "unknown key": (changed("epochs = 1", "epoch = 1"), ("epoch", "can have title, ")),
    "wrong type": (changed("out_features = 32", 'out_features = "32"'), ("out_features",)),
    "unknown input": (
        changed('{ name = "relu1", ', '{ name = "relu1", inputs = ["fc9"], '),
        ("layer 'relu1'", "'fc9'"),
    ),
    "no features": (changed("out_features = 32", "out_features = 0"), ("fc1", "0")),
    "endless features": (
        changed("out_features = 32", "out_features = 100000000000000000000"),
        ("fc1",),
    ),
    "learning rate": (changed("learning_rate = 0.05", "learning_rate = -1.0"), ("learning_rate",)),
    "no rate": (changed("learning_rate = 0.05", "learning_rate = nan"), ("learning_rate",)),
    "endless rate": (changed("learning_rate = 0.05", "learning_rate = inf"), ("learning_rate",)),
    "std": (changed("std = [0.3530]", "std = [0.0]"), ("std",)),
    "channels": (changed("std = [0.3530]", "std = [1.0, 1.0]"), ("mean", "std")),
    "padding": (
        changed("std = [0.3530]", "std = [0.3530]\naugmentation = { pad = 28 }"),
        ("data.augmentation.pad = 28", "28"),
    ),
    "unknown augmentation": (
        changed("std = [0.3530]", "std = [0.3530]\naugmentation = { crop = 4 }"),
        ("crop", "data.augmentation"),
    ),
    "batch": (changed("batch_size = 64", "batch_size = 0"), ("batch_size",)),
    "not TOML": (changed("[model]", "[model"), ("line",)),
}


@pytest.mark.parametrize(("change", "says"), WORKLOADS.values(), ids=list(WORKLOADS))
def test_workload(
    dlb: Dlb,
    write_workload: Callable[[str, str], Path],
    change: tuple[str, str],
    says: tuple[str, ...],
) -> None:
    path = write_workload(*change)
    ended = dlb.run(workload=path)
    assert ended.status == 2
    assert all(word in ended.complaint for word in (str(path), *says)), ended.complaint
    assert ended.out == "" and len(ended.err.splitlines()) == 1


def test_data_set_of_another_shape(dlb: Dlb, write_workload: Callable[[str, str], Path]) -> None:
    ended = dlb.run(workload=write_workload("[1, 28, 28]", "[3, 32, 32]"))
    assert ended.status == 2
    assert "[3, 32, 32]" in ended.complaint and "[1, 28, 28]" in ended.complaint


def test_unknown_data_set(dlb: Dlb, write_workload: Callable[[str, str], Path]) -> None:
    ended = dlb.run(workload=write_workload("fashion-mnist-subset", "fashion-mnist-subste"))
    assert ended.status == 2
    assert "did you mean 'fashion-mnist-subset'" in ended.complaint


#: Files that are no workload at all.
FILES: dict[str, bytes] = {
    "binary": bytes(range(256)) * 40,
    "huge": b"# a comment\n" * 1_000_000,
    "empty": b"",
    "deep": b"a = " + b"[" * 100_000 + b"]" * 100_000,
    "long number": b"batch_size = " + b"9" * 10_000,
    "null": b"name = \x00",
}


@pytest.mark.parametrize("content", FILES.values(), ids=list(FILES))
def test_file_that_is_no_workload(dlb: Dlb, content: bytes) -> None:
    path = dlb.folder / "odd.toml"
    path.write_bytes(content)
    ended = dlb.run(workload=path)
    assert ended.status == 2
    assert str(path) in ended.complaint and len(ended.complaint) < 500


@pytest.mark.parametrize("path", ["nowhere/such.toml", "/", "/dev/zero", "/dev/null/x.toml"])
def test_path_that_is_no_file(dlb: Dlb, path: str) -> None:
    ended = dlb.run(workload=path)
    assert ended.status == 2 and path in ended.complaint


#: Other commands, and what the line must say.
COMMANDS: dict[str, tuple[list[str], tuple[str, ...]]] = {
    "unknown command": (["rnu"], ("'rnu'; did you mean 'run'", "dlb --help")),
    "unknown part": (["env", "crate"], ("did you mean 'create'", "dlb env --help")),
    "framework's name": (["run", "lenet5", "--on", "tensorflow"], ("dlb env create tf",)),
    "near a name": (["run", "lenet5", "--on", "pytroch"], ("did you mean 'pytorch'",)),
    "unknown workload": (["run", "lenet6"], ("'lenet6'", "did you mean 'lenet5'", ".toml")),
    "no workload": (["run"], ("WORKLOAD", "dlb run --help")),
    "unknown list": (["list", "adaptors"], ("adaptors", "adapters")),
    "show nothing": (
        ["show", "nowhere.json"],
        ("nowhere.json", "No such file", "path of a record"),
    ),
    "show two": (
        ["show", "lenet5", "resnet-50"],
        ("one record or one workload", "dlb show --help"),
    ),
    "fetch": (["data", "fetch", "mnits"], ("'mnits'", "known:")),
    "data path": (["data", "path", "mnits"], ("'mnits'", "known:")),
    "fetch offline": (["data", "fetch", "cifar-10", "--offline"], ("offline", "DLB_DATA_DIR")),
    "fetch of one's own": (["data", "fetch", "npz"], ("'npz'", "data.path", ".npz file")),
    "path of one's own": (["data", "path", "imagenet"], ("'imagenet'", "DLB_DATA_DIR")),
    "data nowhere": (["run", "lenet5", "--data", "npz:x.npz"], ("x.npz", "nothing there")),
    "data without a path": (["run", "lenet5", "--data", "words"], ("'words'", "need a path")),
    "unknown data": (["run", "lenet5", "--data", "mnits"], ("'mnits'", "did you mean 'mnist'")),
    "unknown own data": (["run", "lenet5", "--data", "fodler:x"], ("did you mean 'folder'",)),
    "path of a known set": (["run", "lenet5", "--data", "mnist:x"], ("'mnist'", "by its name")),
    "env remove": (["env", "remove", "torch"], ("torch",)),
    "env add": (["env", "add", "torch", "/nowhere/python"], ("/nowhere/python",)),
    "export nowhere": (["export", "lenet5", "/nowhere/model.onnx"], ("/nowhere/model.onnx",)),
    "export adapter": (["export", "lenet5", "m.onnx", "--from", "exampel"], ("'exampel'",)),
    "export unsupported": (
        ["export", "lenet5", "m.onnx", "--from", "example"],
        ("conv1", "conv", "example"),
    ),
}


@pytest.mark.parametrize(("words", "says"), COMMANDS.values(), ids=list(COMMANDS))
def test_command(dlb: Dlb, words: list[str], says: tuple[str, ...]) -> None:
    ended = dlb(*words)
    assert ended.status == 2, ended.err
    assert all(word in ended.complaint for word in says), ended.complaint
    assert ended.out == ""


@pytest.mark.parametrize("words", [["--on", "exampel"], ["--colour"], ["--steps", 0]])
def test_json_holds_the_complaint(dlb: Dlb, words: list[object]) -> None:
    ended = dlb.run("--json", *words)
    assert ended.document == {"error": ended.complaint[5:], "exit_status": 2}


def test_layer_the_adapter_has_not(dlb: Dlb, write_workload: Callable[[str, str], Path]) -> None:
    ended = dlb.run("--json", workload=write_workload('"relu"', '"sigmoid"'))
    assert ended.status == 1
    (record,) = dlb.records().values()
    failure = record["failure"]
    assert (failure["adapter"], failure["layer"]) == ("example", "relu1")
    assert "no sigmoid" in failure["message"]
