"""Fresh ONNX exports of current networks with random weights, for ``onnx_files.py``.

    python benchmarks/onnx_exports.py FOLDER [--of timm] [--of torchvision] [--of transformers] [--of sklearn]
                                        [--legacy]

Needs the packages that are asked for: next to torch, onnx and onnxscript, or with scikit-learn, skl2onnx.
``onnx_exports.toml`` names the networks, small ones of many families. Each is written as
FOLDER/SOURCE/NAME.onnx by ``torch.onnx.export(dynamo=True)``, or without it for ``--legacy``; scikit-learn's by
skl2onnx, with probabilities as tensors and as maps. Networks that cannot be exported are told.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tomllib


def main() -> int:
    """Write every network that is exported, and name the others."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--of", action="append", choices=sorted(SOURCES))
    parser.add_argument("--legacy", action="store_true")
    parser.add_argument("--only", action="append", default=[], metavar="NAME")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")

    for source in asked.of or sorted(SOURCES):
        legacy = asked.legacy and source != "sklearn"
        folder = asked.folder / (source + ("-legacy" if legacy else ""))
        folder.mkdir(parents=True, exist_ok=True)
        written = 0
        for name, make in SOURCES[source]():
            path = folder / f"{name}.onnx"
            if (asked.only and name not in asked.only) or path.exists():
                continue
            try:
                if source == "sklearn":
                    path.write_bytes(make())
                else:
                    write_network(make, path, legacy)
                written += 1
            except Exception as error:
                path.unlink(missing_ok=True)
                line = (str(error).splitlines() or [""])[0][:150]
                print(
                    f"{source} {name}: {type(error).__name__}: {line}", file=sys.stderr, flush=True
                )
        print(f"{source}: {written} written", flush=True)
    return 0


NETWORKS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
OPTIONS: dict[bool, dict[str, Any]] = {
    False: {"external_data": False, "verbose": False},
    True: {},
}
Make = Callable[[], tuple[Any, tuple[Any, ...]]]


def write_network(make: Make, path: Path, legacy: bool) -> None:
    """Write a network of torch, with random weights of seed 0."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    torch.manual_seed(0)
    network, inputs = make()
    with sdpa_kernel(SDPBackend.MATH):  # others view strides that the decomposition lacks
        torch.onnx.export(network.eval(), inputs, str(path), dynamo=not legacy, **OPTIONS[legacy])


def timm_networks() -> Iterator[tuple[str, Make]]:
    """Networks of timm with ten classes."""
    import timm
    import torch

    for name in NETWORKS["timm"]:
        if name not in timm.list_models():
            continue

        def make(name: str = name) -> tuple[Any, tuple[Any, ...]]:
            options: dict[str, Any] = {"pretrained": False, "num_classes": 10}
            try:
                network = timm.create_model(name, img_size=64, **options)
                size = 64
            except Exception:
                network = timm.create_model(name, **options)
                size = network.pretrained_cfg["input_size"][-1]
                if not network.pretrained_cfg.get("fixed_input_size"):
                    size = min(size, 96)
            return network, (torch.randn(2, 3, size, size),)

        yield name, make


def torchvision_networks() -> Iterator[tuple[str, Make]]:
    """Networks of torchvision with ten classes; of segmentations and films too."""
    import torch
    import torchvision

    for name in NETWORKS["torchvision"]:

        def make(name: str = name) -> tuple[Any, tuple[Any, ...]]:
            part = torchvision.models
            *folders, last = name.split(".")
            for folder in folders:
                part = getattr(part, folder)
            options: dict[str, Any] = {"num_classes": 10}
            if last in ("googlenet", "inception_v3"):
                options |= {"aux_logits": False, "init_weights": False}
            if folders == ["segmentation"]:
                options |= {"weights": None, "weights_backbone": None}
            network = getattr(part, last)(**options)
            side = {"inception_v3": 96, "vit_b_32": 224, "maxvit_t": 224}.get(last, 64)
            shape = (2, 3, 16, 64, 64) if "video" in folders else (2, 3, side, side)
            if last == "mvit_v1_b":
                shape = (1, 3, 16, 224, 224)
            if folders == ["segmentation"]:
                network = First(network)
            return network, (torch.randn(*shape),)

        yield name, make


def First(network: Any) -> Any:
    """A network that returns the first of its outputs."""
    import torch

    class Wrapped(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, x: Any) -> Any:
            return next(iter(self.network(x).values()))

    return Wrapped()


#: Settings that make a network small, where its configuration has them.
SMALL = {
    **dict.fromkeys(
        ("hidden_size", "d_model", "n_embd", "dim", "embedding_size", "n_embed", "emb_dim"), 32
    ),
    **dict.fromkeys(
        ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers"), 2
    ),
    **dict.fromkeys(
        ("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads"), 4
    ),
    "num_key_value_heads": 2,
    "head_dim": 8,
    **dict.fromkeys(("intermediate_size", "ffn_dim", "d_ff", "ffn_hidden_size"), 64),
    "vocab_size": 99,
    **dict.fromkeys(("max_position_embeddings", "n_positions", "max_seq_len"), 64),
    "pad_token_id": 0,
    "num_labels": 5,
    "use_cache": False,
    "return_dict": True,
}


def transformers_networks() -> Iterator[tuple[str, Make]]:
    """Small networks of Transformers: classifiers of texts or images, or language models."""
    import torch
    import transformers as hf

    for kind in (*NETWORKS["text"], *NETWORKS["vision"]):
        if kind not in hf.CONFIG_MAPPING:
            continue

        def make(kind: str = kind) -> tuple[Any, tuple[Any, ...]]:
            config = hf.CONFIG_MAPPING[kind]()
            vision = kind in NETWORKS["vision"]
            small = {name: value for name, value in SMALL.items() if hasattr(config, name)}
            if vision:
                lists = {n for n in small if isinstance(getattr(config, n), (list, tuple))}
                small = {n: v for n, v in small.items() if n not in lists}
                if hasattr(config, "image_size") and isinstance(config.image_size, int):
                    small["image_size"] = 64
            config = hf.CONFIG_MAPPING[kind](**small)
            mapping = (
                [hf.AutoModelForImageClassification]
                if vision
                else [hf.AutoModelForSequenceClassification, hf.AutoModelForCausalLM, hf.AutoModel]
            )
            for auto in mapping:
                try:
                    network = auto.from_config(config, attn_implementation="eager")
                    break
                except ValueError:
                    continue
            x = torch.randn(2, 3, 64, 64) if vision else torch.randint(1, 99, (2, 16))
            return Logits(network, "pixel_values" if vision else "input_ids"), (x,)

        yield kind, make


def Logits(network: Any, name: str) -> Any:
    """A network that reads one value, and returns its logits or its last hidden state."""
    import torch

    class Wrapped(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, x: Any) -> Any:
            found = self.network(**{name: x})
            return found.logits if hasattr(found, "logits") else found[0]

    return Wrapped()


def sklearn_networks() -> Iterator[tuple[str, Callable[[], bytes]]]:
    """Perceptrons of scikit-learn with one to three hidden layers, alone and behind other steps; linear models.

    Classes are numbers, two or three; with ``-names`` they are text, and with ``-several`` a sample has more.
    """
    from skl2onnx import to_onnx
    from sklearn import linear_model, neural_network, preprocessing
    from sklearn.decomposition import PCA
    from sklearn.pipeline import make_pipeline

    draw = np.random.default_rng(0)
    samples = draw.normal(size=(60, 8)).astype(np.float32)
    three = draw.integers(0, 3, 60)
    targets = {
        "3": three,
        "2": three % 2,
        "names": np.array(["first", "second", "third"])[three],
        "several": (samples[:, :3] > 0).astype(int),
        "number": samples[:, 0],
        "numbers": samples[:, :3],
    }

    def network(hidden: tuple[int, ...] = (16,), activation: str = "relu", **options: Any) -> Any:
        kind = (
            neural_network.MLPRegressor
            if options.pop("number", 0)
            else neural_network.MLPClassifier
        )
        return kind(hidden_layer_sizes=hidden, activation=activation, max_iter=20, **options)

    models = {
        **{
            f"{activation}-{goal}": (network((16, 8), activation, number=goal == "number"), goal)
            for activation in ("relu", "tanh", "logistic", "identity")
            for goal in ("3", "number")
        },
        **{f"relu-{goal}": (network(), goal) for goal in ("2", "names", "several")},
        "deep-3": (network((32, 32, 32)), "3"),
        "relu-numbers": (network(number=1), "numbers"),
        **{
            f"{name.lower()}-3": (make_pipeline(getattr(preprocessing, name)(), network()), "3")
            for name in ("StandardScaler", "MinMaxScaler", "MaxAbsScaler", "RobustScaler")
            + ("Normalizer", "Binarizer", "PolynomialFeatures")
        },
        "pca-2": (make_pipeline(preprocessing.StandardScaler(), PCA(4), network()), "2"),
        **{
            f"{name.lower()}-{goal}": (getattr(linear_model, name)(), goal)
            for name, goal in (
                *(("LogisticRegression", "2"), ("LogisticRegression", "3"), ("Perceptron", "3")),
                *(("SGDClassifier", "3"), ("RidgeClassifier", "3"), ("Ridge", "numbers")),
            )
        },
    }
    for name, (model, goal) in models.items():
        for form in ("", "-maps") if not goal.startswith("number") else ("",):

            def make(model: Any = model, goal: str = goal, form: str = form) -> bytes:
                model.fit(samples, targets[goal])
                options = None if goal.startswith("number") else {id(model): {"zipmap": bool(form)}}
                written: bytes = to_onnx(model, samples[:1], options=options).SerializeToString()
                return written

            yield name + form, make


SOURCES: dict[str, Callable[[], Iterator[tuple[str, Callable[[], Any]]]]] = {
    "sklearn": sklearn_networks,
    "timm": timm_networks,
    "torchvision": torchvision_networks,
    "transformers": transformers_networks,
}

if __name__ == "__main__":
    raise SystemExit(main())
