"""Ports that people wrote, right and wrong, and what ``dlb port`` says of each.

    python tests/cross/port_cases.py > docs/explanation/ports.csv

runs every case and writes the table of the documentation. Names of folders after it select cases. It needs
the four environments, which ``dlb env create`` makes. Each case lies in a folder of ``cases`` with a module
for each framework.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

CASES = Path(__file__).parent / "cases"
FLOAT32 = "deviates within float32 constants"
COLUMNS = ("case", "models", "what is so", "result", "found by", "says")


@dataclass(frozen=True)
class Case:
    """One port.

    Attributes:
        folder: of :data:`CASES`.
        models: adapter and factory of both, the reference first: ``torch:make``.
        what: what is so, as a row of a table.
        proof: the outcome.
        words: further words of the command.
        check: the check that finds it; empty if the port is right.
        says: what the finding contains, or the error where nothing is proven (``refused``).
    """

    folder: str
    models: tuple[str, str]
    what: str
    proof: str = "proven"
    words: tuple[str, ...] = ()
    check: str = ""
    says: str = ""


def port(folder: str, first: str, second: str, what: str, *words: str, **found: str) -> Case:
    return Case(folder, (first, second), what, words=words, **found)


IMAGE, SERIES = ("--layout", "tf=NHWC"), ("--layout", "tf=NWC", "--output-layout", "tf=NWC")
NAMED = ("--input-shape", "image=3,4,4", "--input-shape", "scale=1")
#: The training programs of both models.
OWN_STEPS = ("--program", "momentum", "momentum")
WRONG = "deviates"
RIGHT = ("proven", "within rounding")
PORTS = (
    port("gru", "torch:make", "tf:make", "stacked GRUs, one layer and two"),
    port(
        "gru",
        "torch:make",
        "tf:reset_before",
        "the reset gate acts before the product",
        proof="refused",
        says="GRU(reset_after=False",
    ),
    port("bidirectional", "torch:make", "tf:make", "one layer and three"),
    port("bidirectional", "tf:make", "torch:make", "one layer and three, the other way round"),
    port("bidirectional", "tf:make", "torch:two_passes", "written as two passes"),
    port(
        "bidirectional",
        "tf:make",
        "torch:not_put_back",
        "steps are not put back in order",
        proof=WRONG,
        check="layers",
        says="TwoPasses(flip=False)",
    ),
    port(
        "transposed_conv",
        "torch:make",
        "tf:make",
        "output padding, and cropping",
        "--output-layout",
        "tf=NHWC",
    ),
    port(
        "transposed_conv",
        "torch:make",
        "tf:same_padding",
        "padding by one more on the other side",
        "--output-layout",
        "tf=NHWC",
        proof=WRONG,
        check="layers",
        says="up2",
    ),
    port("separable", "torch:make", "tf:make", "two layers and one", *IMAGE),
    port("separable", "tf:make", "torch:make", "two layers and one, the other way round", *IMAGE),
    port("separable", "torch:make", "tf:two", "two layers and two", *IMAGE),
    port(
        "separable",
        "torch:between",
        "tf:make",
        "a ReLU between both convolutions",
        *IMAGE,
        proof=WRONG,
        check="layers",
        says="separable_conv2d",
    ),
    port("causal", "torch:make", "tf:make", "padded before, and by causal padding", *SERIES),
    port("causal", "torch:cut", "tf:make", "padded on both sides and cut", *SERIES),
    port(
        "causal",
        "torch:centred",
        "tf:make",
        "looks ahead",
        *SERIES,
        proof=WRONG,
        check="layers",
        says="first layer past the tolerance: conv.0",
    ),
    port("written_gru", "tf:make", "torch:make", "a recurrence written out"),
    port(
        "written_gru",
        "tf:make",
        "torch:outside",
        "the bias outside of the reset gate",
        proof=WRONG,
        check="layers",
        says="gru",
    ),
    port(
        "prelu",
        "torch:make",
        "tf:make",
        "channels flattened last",
        *IMAGE,
        proof=WRONG,
        check="layers",
        says="flattened in another order",
    ),
    port(
        "prelu",
        "torch:make",
        "tf:make",
        "the same, with the entry that dlb names",
        *IMAGE,
        "--told",
    ),
    port(
        "prelu",
        "torch:make",
        "tf:slope_of_each_value",
        "slopes that are not shared",
        *IMAGE,
        proof="refused",
        says="p_re_lu.alpha of PReLU(shared_axes=None), [5, 8, 8]",
    ),
    port(
        "weight_norm", "torch:make", "tf:make", "normalised weights, compared as they act", *SERIES
    ),
    port(
        "weight_norm", "tf:make", "torch:legacy", "normalised weights, the other way round", *SERIES
    ),
    port("attention", "torch:make", "tf:make", "two layers of attention"),
    port("attention", "torch:three_matrices", "tf:make", "three matrices, and a layer"),
    port("attention", "tf:make", "torch:one_matrix", "a layer, and one matrix"),
    port("grouped_query", "torch:make", "tf:make", "heads that share keys and values, and a layer"),
    port("grouped_query", "tf:written", "torch:repeated", "written out in both"),
    port("grouped_query", "torch:make", "tf:einsum", "written out, with an axis of heads"),
    port(
        "grouped_query",
        "torch:tiled",
        "tf:make",
        "keys and values tiled, not repeated",
        proof=WRONG,
        check="layers",
        says="attention, Attention",
    ),
    port(
        "grouped_query",
        "torch:make",
        "tf:tiled",
        "the same, written out",
        proof=WRONG,
        check="layers",
        says="Attention(tile=True",
    ),
    port(
        "grouped_query",
        "torch:make",
        "tf:other_groups",
        "two heads of eight for four of four",
        proof=WRONG,
        check="layers",
        says="head_dim=8, num_query_heads=2",
    ),
    port("lora", "torch:make", "tf:make", "additions of low rank, as layers"),
    port("lora", "tf:make", "torch:derived", "additions of low rank, as parameters"),
    port(
        "lora",
        "torch:alpha_only",
        "tf:make",
        "not divided by the rank",
        proof=WRONG,
        check="layers",
        says="Layers(scale=8.0)",
    ),
    port(
        "lora",
        "torch:make",
        "tf:option",
        "an alpha that Keras loses",
        proof=WRONG,
        check="layers",
        says="lora_alpha=2",
    ),
    port(
        "lora",
        "torch:trained",
        "tf:make",
        "the base is trained",
        proof=WRONG,
        check="gradients",
        says="'0.base.weight' is trained in torch only",
    ),
    port("stacked", "torch:make", "tf:make", "layers, and slices of an array"),
    port("stacked", "torch:stacked", "tf:separate", "slices of an array, and layers"),
    port("stacked", "torch:states", "tf:separate", "states that torch stacked, and layers"),
    port("stacked", "torch:states", "tf:make", "slices of arrays that lie in other ways"),
    port(
        "stacked",
        "torch:make",
        "tf:swapped",
        "two slices exchanged",
        proof=WRONG,
        check="layers",
        says="'stack' Stack of tf",
    ),
    port(
        "stacked",
        "torch:stacked",
        "tf:relu",
        "another activation between slices of both",
        proof=WRONG,
        check="layers",
        says="'stack' Stack of tf",
    ),
    port(
        "reference_in_float32",
        "torch:coarse",
        "tf:make",
        "a reference that lacks digits in float32",
        proof=WRONG,
        check="forward float32",
        says="torch: ",
    ),
    port(
        "reference_in_float32",
        "torch:failing",
        "tf:make",
        "a reference that cannot run in float32",
        proof="unproven",
        check="forward float32",
        says="torch: RuntimeError: this kernel has no float32",
    ),
    port(
        "reference_in_float32",
        "tf:make",
        "torch:coarse",
        "a port that lacks digits in float32",
        proof=WRONG,
        check="forward float32",
        says="",
    ),
    port("relu6", "torch:make", "tf:make", "bounded activations", *IMAGE),
    port(
        "relu6",
        "torch:make",
        "tf:unbounded",
        "the bound left out",
        *IMAGE,
        proof=WRONG,
        check="layers",
        says="'re_lu' ReLU",
    ),
    port(
        "relu6",
        "torch:unbounded",
        "tf:make",
        "a bound too many",
        *IMAGE,
        proof=WRONG,
        check="layers",
        says="'re_lu' ReLU",
    ),
    port("padded_pooling", "torch:make", "tf:make", "a pooling with a border", *IMAGE),
    port(
        "padded_pooling",
        "torch:make",
        "tf:zeros",
        "the border padded with zeros",
        *IMAGE,
        proof=WRONG,
        check="layers",
        says="ZeroPadding2D",
    ),
    port(
        "narrow_norm",
        "torch:make",
        "tf:make",
        "a normalisation in float32",
        proof="within rounding",
        check="layers",
        says="rounding to float32 there",
    ),
    port(
        "narrow_norm",
        "torch:make",
        "tf:ten_times",
        "ten times its epsilon",
        proof=WRONG,
        check="layers",
        says="Norm(epsilon=1e-05)",
    ),
    port("own_blocks", "torch:make", "tf:make", "parameters of one's own in blocks that repeat"),
    port(
        "own_blocks",
        "torch:make",
        "tf:largest",
        "another norm in such a block",
        proof=WRONG,
        check="layers",
        says="Rescale(largest=True)",
    ),
    port("branch", "torch:make", "tf:make", "two branches"),
    port("lora_convolution", "torch:make", "tf:make", "layers next to a convolution", *IMAGE),
    port("lora_convolution", "torch:derived", "tf:make", "parameters of one's own", *IMAGE),
    port("lora_convolution", "torch:series", "tf:series", "of a series", "--layout", "tf=NWC"),
    port(
        "lora_convolution",
        "torch:of_rank_one",
        "tf:of_rank_one",
        "of rank 1",
        "--layout",
        "tf=NWC",
    ),
    port(
        "lora_convolution",
        "torch:alpha_only",
        "tf:make",
        "alpha is not divided by the rank",
        *IMAGE,
        proof=WRONG,
        check="layers",
        says="0, Layers(torch: '0' Layers(scale=8.0); tf: 'conv2d' Conv2D(",
    ),
    port(
        "lora_convolution",
        "torch:of_rank_one",
        "tf:series",
        "of another rank",
        "--layout",
        "tf=NWC",
        proof="refused",
        says="0.lora_down.weight of Conv1d, [1, 6, 5] has no counterpart",
    ),
    port("lora_attention", "torch:make", "tf:make", "linear layers next to maps"),
    port("lora_attention", "torch:packed", "tf:make", "added to a joined matrix"),
    port("lora_attention", "torch:heads", "tf:heads", "whose heads share the second matrix"),
    port("lora_attention", "torch:every", "tf:every", "and of the map of the output"),
    port(
        "lora_attention",
        "torch:every_other_scale",
        "tf:every",
        "half as much is added",
        proof=WRONG,
        check="layers",
        says="first layer past the tolerance: attention, All(",
    ),
    port(
        "lora_attention",
        "torch:heads_alpha_only",
        "tf:heads",
        "alpha is not divided by the rank",
        proof=WRONG,
        check="layers",
        says="first layer past the tolerance: attention, Attention(",
    ),
    port(
        "statistics_in_float32",
        "torch:make",
        "tf:make",
        "variances over n - 1 and n",
        *IMAGE,
        "--dtype",
        "float32",
        proof="within rounding",
    ),
    port(
        "statistics_in_float32",
        "torch:make",
        "tf:same_number",
        "the momentum of the other framework",
        *IMAGE,
        "--dtype",
        "float32",
        proof=WRONG,
        check="running statistics float32",
        says="'1' of torch keeps 0.7 of its running statistics at a step, 'batch_normalization' of tf 0.3",
    ),
    port(
        "branch",
        "torch:make",
        "tf:steeper",
        "another slope before two branches",
        proof=WRONG,
        check="layers",
        says="'leaky_re_lu' LeakyReLU(negative_slope=0.5)",
    ),
    port(
        "resize",
        "torch:make",
        "tf:make",
        "a layer that returns float32",
        *IMAGE,
        "--output-layout",
        "tf=NHWC",
        proof=FLOAT32,
        check="layers",
        says="'up_sampling2d' UpSampling2D",
    ),
    port(
        "resize",
        "torch:make",
        "tf:nearest",
        "another interpolation",
        *IMAGE,
        "--output-layout",
        "tf=NHWC",
        proof=WRONG,
        check="layers",
        says="UpSampling2D",
    ),
    port(
        "resize",
        "torch:aligned",
        "tf:make",
        "corners aligned",
        *IMAGE,
        "--output-layout",
        "tf=NHWC",
        proof=WRONG,
        check="layers",
        says="interpolate()",
    ),
    port(
        "float32_constant",
        "torch:gelu",
        "tf:gelu",
        "GELU",
        proof=FLOAT32,
        check="forward",
        says="'activation' Activation(activation=gelu)",
    ),
    port(
        "float32_constant",
        "tf:leaky",
        "torch:leaky",
        "LeakyReLU",
        proof=FLOAT32,
        check="forward",
        says="'leaky_re_lu' LeakyReLU",
    ),
    port(
        "float32_constant",
        "torch:gelu",
        "mxnet:gelu",
        "GELU",
        "--input-shape",
        "6",
        proof=FLOAT32,
        check="forward",
        says="'1' GELU of mxnet",
    ),
    port(
        "float32_constant",
        "torch:gelu",
        "tf:leaky",
        "GELU for LeakyReLU",
        proof=WRONG,
        check="layers",
        says="'leaky_re_lu' LeakyReLU",
    ),
    port("dropout", "torch:make", "tf:make", "dropout of channels", *IMAGE),
    port(
        "dropout",
        "torch:make",
        "tf:of_elements",
        "dropout of elements",
        *IMAGE,
        proof=WRONG,
        check="settings",
        says="0.2 of channels at '2' of torch and 0.2 of elements at 'dropout' of tf",
    ),
    port(
        "dropout",
        "torch:make",
        "tf:other_rate",
        "the rate of what is kept",
        *IMAGE,
        proof=WRONG,
        check="settings",
        says="0.8 of channels at 'spatial_dropout2d' of tf",
    ),
    port("stochastic_depth", "torch:make", "tf:make", "samples skip a block"),
    port("stochastic_depth", "tf:as_dropout", "torch:make", "a layer, and a dropout of samples"),
    port(
        "stochastic_depth", "torch:deep", "tf:deep", "rates that grow with depth, next to dropout"
    ),
    port(
        "stochastic_depth",
        "torch:deep",
        "tf:deep_wrong",
        "two rates exchanged",
        proof=WRONG,
        check="settings",
        says="0.03 of samples at 'paths.1' of torch and 0.06 of samples at 'drop_path_1' of tf",
    ),
    port(
        "stochastic_depth",
        "tf:make",
        "torch:batch",
        "all samples of a batch skip it or none",
        proof=WRONG,
        check="settings",
        says="0.25 of whole batches at 'drop_path' of torch",
    ),
    port(
        "stochastic_depth",
        "tf:make",
        "torch:swapped",
        "drops as many as are to be kept",
        proof=WRONG,
        check="settings",
        says="0.25 of samples, not as often as scaled at 'drop_path' of torch",
    ),
    port(
        "stochastic_depth",
        "torch:make",
        "tf:other_rate",
        "the rate of what is kept",
        proof=WRONG,
        check="settings",
        says="0.25 of samples at 'drop_path' of torch and 0.75 of samples at 'drop_path' of tf",
    ),
    port(
        "stochastic_depth",
        "torch:make",
        "tf:not_scaled",
        "what is kept is not scaled",
        proof=WRONG,
        check="settings",
        says="of samples, not scaled at 'drop_path' of tf",
    ),
    port(
        "stochastic_depth",
        "torch:make",
        "tf:of_elements",
        "dropout of elements",
        proof=WRONG,
        check="settings",
        says="0.25 of elements at 'dropout' of tf",
    ),
    port(
        "functional_dropout",
        "torch:make",
        "chainer:make",
        "dropout as a function",
        "--input-shape",
        "6",
    ),
    port(
        "functional_dropout",
        "chainer:make",
        "mxnet:make",
        "a function, and a layer",
        "--input-shape",
        "6",
    ),
    port(
        "functional_dropout",
        "torch:make",
        "chainer:other_rate",
        "the rate of what is kept",
        "--input-shape",
        "6",
        proof=WRONG,
        check="settings",
        says="0.75 of elements",
    ),
    port("regularizer", "torch:make", "tf:make", "no penalty"),
    port(
        "regularizer",
        "torch:make",
        "tf:penalised",
        "weight decay as a penalty",
        proof=WRONG,
        check="settings",
        says="'0.weight' is penalised or constrained by nothing in torch, L2(l2=0.0005) in tf",
    ),
    port("frozen_norm", "torch:make", "tf:make", "a normalisation that is not trained", *IMAGE),
    port(
        "frozen_norm",
        "torch:trained",
        "tf:make",
        "a normalisation that takes the batch's statistics",
        *IMAGE,
        proof=WRONG,
        check="forward, training",
        says="trainable=False",
    ),
    port("norm_without_statistics", "torch:make", "tf:make", "running statistics", *IMAGE),
    port(
        "norm_without_statistics",
        "torch:without_statistics",
        "tf:make",
        "no running statistics in one",
        *IMAGE,
        proof=WRONG,
        check="layers",
        says="track_running_stats=False",
    ),
    port("two_inputs", "torch:make", "tf:make", "tokens and a mask", "--input", "tokens.npz"),
    port("packed", "torch:make", "tf:make", "lengths, and a mask", "--input", "lengths.npz"),
    port(
        "packed",
        "torch:not_packed",
        "tf:make",
        "reads on behind the end",
        "--input",
        "lengths.npz",
        proof=WRONG,
        check="layers",
        says="rnn",
    ),
    port(
        "outputs",
        "torch:make",
        "tf:make",
        "a dictionary of a map, a sequence and states",
        *NAMED,
        *IMAGE,
        "--output-layout",
        "tf=NHWC",
    ),
    port(
        "outputs",
        "torch:exchanged",
        "tf:make",
        "two states exchanged",
        *NAMED,
        *IMAGE,
        "--output-layout",
        "tf=NHWC",
        proof=WRONG,
        check="forward",
        says="",
    ),
    port(
        "chainer_resize",
        "torch:make",
        "chainer:make",
        "a function that reads float32 only",
        "--input-shape",
        "3,8,8",
        proof="refused",
        says="Expect: x.dtype == <class 'numpy.float32'>",
    ),
    port(
        "chainer_pooling",
        "torch:make",
        "chainer:make",
        "poolings that cover all",
        "--input-shape",
        "3,9,9",
    ),
    port(
        "chainer_pooling",
        "torch:floor_mode",
        "chainer:make",
        "a pooling in floor mode",
        "--input-shape",
        "3,9,9",
        proof="refused",
        says="fc.weight",
    ),
    port(
        "training",
        "chainer:make",
        "torch:make",
        "training programs",
        *OWN_STEPS,
        "--input-shape",
        "6",
    ),
    port(
        "training",
        "torch:make",
        "tf:make",
        "a momentum in float32",
        *OWN_STEPS,
        proof=FLOAT32,
        check="own steps",
        says="as much as a constant in float32",
    ),
    port(
        "training",
        "torch:make",
        "tf:make",
        "another epsilon of Adam",
        *("--program", "adam", "adam"),
        proof=WRONG,
        check="own steps",
        says="5 steps",
    ),
    port(
        "training",
        "torch:make",
        "tf:make",
        "a tenth of the learning rate",
        *("--program", "momentum", "dampened"),
        proof=WRONG,
        check="own steps",
        says="5 steps",
    ),
)


def inputs(folder: Path) -> None:
    """Write the files of inputs that cases name."""
    generator = np.random.default_rng(0)
    ids, mask = generator.integers(1, 30, (4, 6)), np.ones((4, 6), np.int64)
    mask[1, 3:], mask[2, 5:] = 0, 0
    np.savez(folder / "tokens.npz", ids=ids, mask=mask)
    tokens, lengths = generator.integers(1, 20, (4, 7)), np.array([7, 3, 5, 1])
    np.savez(folder / "lengths.npz", tokens=tokens, lengths=lengths)
    samples, classes = generator.standard_normal((5, 8, 6)), generator.integers(0, 3, (5, 8))
    np.savez(folder / "batches.npz", x=samples, y=classes)


def run(
    case: Case, folder: Path, dlb: Callable[..., subprocess.CompletedProcess[str]]
) -> tuple[int, Mapping[str, Any] | str]:
    """Run a case in an empty folder.

    Returns:
        the exit status, and the document of ``--json``, or the error's line if nothing was proven.
    """
    shutil.copytree(CASES / case.folder, folder, dirs_exist_ok=True)
    inputs(folder)
    models = []
    for model in case.models:
        adapter, _, factory = model.partition(":")
        models.append(f"{adapter}={adapter}_model:{factory}")
    words = [word for word in case.words if word != "--told"]
    if "--program" in words:
        place = words.index("--program")
        for model, program in zip(case.models, words[place + 1 : place + 3]):
            adapter = model.partition(":")[0]
            words += ["--trainer", f"{adapter}={adapter}_model:{program}"]
        words[place : place + 3] = ["--batches", "batches.npz"]
    command = ("port", *models, *words, "--threads", "1", "--json")
    done = dlb(*command, cwd=str(folder))
    if "--told" in case.words:
        _write_entry(folder / "dlb-map.toml", json.loads(done.stdout))
        done = dlb(*command, "--map", "dlb-map.toml", cwd=str(folder))
    document = json.loads(done.stdout)
    return done.returncode, document.get("error", document)


def _write_entry(path: Path, document: Mapping[str, Any]) -> None:
    """Put the entry that a finding names in the place of the one in the map."""
    causes = [
        finding["cause"]
        for each in document["certificate"]["checks"]
        for finding in each["findings"]
    ]
    order = next(cause for cause in causes if cause["code"] == "flatten_order")
    start = f'{{ from = "{order["source"]}", to = "{order["target"]}"'
    more = f", reshape = {order['reshape']}, transpose = {order['transpose']}"
    path.write_text(path.read_text().replace(start, start + more))


def outcome(case: Case, result: Mapping[str, Any] | str) -> tuple[str, str, str]:
    """The outcome of a case, the check that found it, and the sentence of its finding."""
    import msgspec

    from dlb.proof.certificate import Certificate
    from dlb.report.sentences import describe

    if isinstance(result, str):
        return "refused", "", result.partition("; output: ")[0]
    certificate = msgspec.convert(result["certificate"], Certificate)
    second = case.models[1].partition(":")[0]
    judged = {name: certificate.status(name) for name in certificate.judged_adapters}
    # The reference is judged if it is what is wrong.
    at_fault = next((name for name in judged if judged[name] not in RIGHT), second)
    proof = judged[at_fault]
    failed = [each for each in certificate.checks if each.verdict != "passed"]
    found = next(
        (each for each in failed if each.check == case.check), failed[0] if failed else None
    )
    text = describe(found) if found else ""
    return (
        proof,
        found.check if found else "",
        text if at_fault == second else f"{at_fault}: {text}",
    )


def main() -> None:
    """Write the table."""
    command = Path(sys.executable).parent / "dlb"
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(COLUMNS)

    def dlb(*words: str, cwd: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(command), *words], cwd=cwd, capture_output=True, text=True, env=dict(os.environ)
        )

    def row(case: Case) -> list[str]:
        with tempfile.TemporaryDirectory() as folder:
            found = outcome(case, run(case, Path(folder), dlb)[1])
        return [case.folder, " and ".join(case.models), case.what, *found]

    chosen = [case for case in PORTS if not sys.argv[1:] or case.folder in sys.argv[1:]]
    with ThreadPoolExecutor(2) as pool:
        for each in pool.map(row, chosen):
            out.writerow(each)
            sys.stdout.flush()


if __name__ == "__main__":
    main()
