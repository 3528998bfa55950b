"""Which parameters of a port are matched by themselves, and which weights show a difference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from dlb.errors import RequestError
from dlb_port.attention import with_attention_joined
from dlb_port.culprit import owner_pairs
from dlb_port.matching import MatchableModel, propose
from dlb_port.stacked import nearest, pair_stacked
from dlb_port.states import compare_states, within_rounding
from dlb_port.varied import varied
from dlb_port.weight_map import Pair, join, read_map
from dlb_worker.contract import ParameterDescription, UserLayer

NAMES = ("one", "other")


def test_what_is_wrong_in_a_map_is_named_with_its_line(tmp_path: Path) -> None:
    text = "[models.a]\nweights = [\n{ from = 'x', to = 'y' },\n]\n"
    path = tmp_path / "map.toml"
    path.write_text(text + text.replace("models.a", "models.b").replace("'y'", "3"))
    with pytest.raises(RequestError) as wrong:
        read_map(path, ["one", "a", "b"])
    assert "map.toml, line 7: not a map: models.b.weights.0.to: expected" in str(wrong.value)


def parameter(
    layer: str, role: str, *shape: int, trained: bool = True, name: str = ""
) -> ParameterDescription:
    name = f"{layer}.{name or role.replace(' ', '_')}"
    return ParameterDescription(name, layer, role, shape, shape, "float64", trained)


def model(
    layers: dict[str, str], parameters: Sequence[ParameterDescription], **attributes: str
) -> MatchableModel:
    """Layers by name with their kinds, called in order."""
    described = {name: UserLayer(name, kind, attributes, kind) for name, kind in layers.items()}
    return MatchableModel(described, parameters, list(layers))


SINE = np.sin(np.outer(np.arange(6), 10000.0 ** -(np.arange(8) / 8)))
OTHER = np.sin(np.outer(np.arange(6), 1000.0 ** -(np.arange(8) / 8)))
NOISE = np.random.default_rng(0).standard_normal((2, *SINE.shape))
#: Of both factories: the array, and that of another call; whether frozen; and where the pair ends up.
STATES = {
    "same": ((SINE, SINE), (SINE, SINE), False, "carried"),
    "rounded": ((SINE, SINE), (np.float32(SINE).astype(float),) * 2, False, "carried facts"),
    "other": ((SINE, SINE), (OTHER, OTHER), False, "faults"),
    "not set": ((SINE, SINE), (0 * SINE, 0 * SINE), False, "faults"),
    "not finite": ((SINE, SINE), (np.full(SINE.shape, np.nan),) * 2, False, "faults"),
    "drawn": (tuple(NOISE), tuple(-NOISE), False, "carried"),
    "drawn in one": ((SINE, SINE), tuple(NOISE), False, "carried"),
    "frozen and drawn": ((SINE, SINE), tuple(NOISE), True, "carried"),
    "frozen and not set": ((SINE, SINE), (0 * SINE, 0 * SINE), True, "carried"),
    "frozen": ((SINE, SINE), (OTHER, OTHER), True, "carried doubts"),
}


@pytest.mark.parametrize(("own", "other", "frozen", "where"), STATES.values(), ids=list(STATES))
def test_what_factories_compute_is_compared_and_what_they_draw_is_carried(
    own: Sequence[np.ndarray], other: Sequence[np.ndarray], frozen: bool, where: str
) -> None:
    described = replace(parameter("", "", *SINE.shape, trained=False), name="pe", frozen=frozen)
    (first, second), (third, fourth) = own, other
    sides = [
        SimpleNamespace(name=name, remote=SimpleNamespace(evaluation_only=False)) for name in NAMES
    ]

    def compare(moved: np.ndarray, why: str = "by name") -> str:
        states = compare_states(
            *sides,
            [Pair(described, described, why)],
            {"pe": first},
            {"pe": third},
            lambda: ({"pe": second}, {"pe": fourth}),
            lambda: {"pe": moved},
        )
        return " ".join(
            name
            for name in ("carried", "left", "faults", "doubts", "facts")
            if getattr(states, name)
        )

    assert compare(moved=third) == where
    # Running statistics, which a pass moves; and two tables of one shape, which need not be the same.
    assert compare(moved=np.ones_like(third)) == where.replace("faults", "carried")
    assert compare(third, "by shape") == where.replace("faults", "left")


@pytest.mark.parametrize("shape", [(8,), (512, 64)])
def test_a_table_may_be_off_by_what_float32_makes_of_its_angles(shape: tuple[int, ...]) -> None:
    def table(base: float, dtype: type) -> np.ndarray:
        rates = (base ** -(np.arange(shape[-1], dtype=dtype) / dtype(shape[-1]))).astype(dtype)
        angles = rates if len(shape) == 1 else np.arange(shape[0], dtype=dtype)[:, None] * rates
        return np.sin(angles).astype(np.float64)

    assert within_rounding(table(1e4, np.float32), table(1e4, np.float64))
    assert not within_rounding(table(10010.0, np.float32), table(1e4, np.float64))


def pairs(one: MatchableModel, other: MatchableModel) -> dict[str, str]:
    proposal = propose(one, other, NAMES)
    assert not proposal.undecided, proposal.undecided
    return {pair.source.name: pair.target.name for pair in proposal.pairs}


def recurrence(layer: str, start: str = "", inputs: int = 5) -> list[ParameterDescription]:
    return [
        parameter(layer, f"{start}input_weight", 16, inputs),
        parameter(layer, f"{start}recurrent_weight", 16, 4),
        parameter(layer, f"{start}bias", 16),
    ]


def test_a_stacked_recurrence_is_matched_with_several() -> None:
    one = model({"rnn": "gru"}, recurrence("rnn") + recurrence("rnn", "layer 1 ", 4))
    other = model({"a": "gru", "b": "gru"}, recurrence("a") + recurrence("b", inputs=4))
    assert pairs(one, other)["rnn.layer_1_bias"] == "b.bias"
    assert pairs(other, one)["b.bias"] == "rnn.layer_1_bias"


def test_directions_are_told_apart_by_what_they_are() -> None:
    one = model({"rnn": "lstm"}, recurrence("rnn") + recurrence("rnn", "backward "))
    layers = {
        "back": UserLayer("back", "LSTM", {"go_backwards": "True"}, "lstm"),
        "ahead": UserLayer("ahead", "LSTM", {"go_backwards": "False"}, "lstm"),
    }
    other = MatchableModel(layers, recurrence("back") + recurrence("ahead"), ["back", "ahead"])
    assert pairs(one, other)["rnn.backward_bias"] == "back.bias"


def test_a_written_bidirectional_layer_is_matched_by_order() -> None:
    one = model({"rnn": "lstm"}, recurrence("rnn") + recurrence("rnn", "backward "))
    other = model({"a": "lstm", "b": "lstm"}, recurrence("a") + recurrence("b"))
    assert pairs(one, other)["rnn.backward_bias"] == "b.bias"


def test_a_separable_convolution_is_matched_with_two() -> None:
    one = model(
        {"depth": "conv", "point": "conv"},
        [parameter("depth", "weight", 8, 1, 3, 3), parameter("point", "weight", 6, 8, 1, 1)],
    )
    other = model(
        {"both": "conv"},
        [
            parameter("both", "depthwise weight", 8, 1, 3, 3),
            parameter("both", "pointwise weight", 6, 8, 1, 1),
        ],
    )
    found = pairs(one, other)
    assert found["depth.weight"] == "both.depthwise_weight"
    assert found["point.weight"] == "both.pointwise_weight"


def test_states_that_only_one_normalisation_keeps_are_left() -> None:
    trained = [parameter("bn", "scale", 6), parameter("bn", "bias", 6)]
    states = [parameter("bn", role, 6, trained=False) for role in ("mean", "variance")]
    one, other = model({"bn": "batch_norm"}, trained), model({"bn": "batch_norm"}, trained + states)
    proposal = propose(one, other, NAMES)
    assert not proposal.undecided
    assert proposal.left == ([], ["bn.mean", "bn.variance"])


def test_what_is_not_decided_shows_the_attribute_that_says_why() -> None:
    one = model({"rnn": "gru"}, recurrence("rnn")[:2] + [parameter("rnn", "bias", 2, 12)])
    single = parameter("gru", "reset_before_bias", 12, name="bias")
    other = model({"gru": "gru"}, [*recurrence("gru")[:2], single], reset_after="False")
    proposal = propose(one, other, NAMES)
    assert len(proposal.pairs) == 2
    assert "gru.bias of gru(reset_after=False), [12] has no counterpart" in proposal.undecided[1]


def own(layer: str, **shapes: tuple[int, ...]) -> list[ParameterDescription]:
    """Parameters of a user's own layer, in no known layout."""
    return [parameter(layer, "", *shape, name=name) for name, shape in shapes.items()]


def test_own_parameters_of_repeated_blocks_are_matched_by_order() -> None:
    """An axis of size 1 is no layout, and parameters of one layer are told apart by their names."""
    blocks = [own(f"blocks.{n}.grn", gamma=(1, 1, 8), beta=(1, 1, 8)) for n in range(2)]
    again = [own(f"response_{n}", beta=(8,), gamma=(8,)) for n in range(2)]
    found = pairs(
        model({"blocks.0.grn": "", "blocks.1.grn": ""}, [*blocks[0], *blocks[1]]),
        model({"response_0": "", "response_1": ""}, [*again[0], *again[1]]),
    )
    assert found["blocks.1.grn.gamma"] == "response_1.gamma" and len(found) == 4
    square = [own(layer, kernel=(8, 8)) for layer in ("one", "two")]
    proposal = propose(*(model({"one": "", "two": ""}, [*square[0], *square[1]]),) * 2, NAMES)
    assert not proposal.pairs and len(proposal.undecided) == 2


def test_a_state_of_ones_own_leaves_its_layer_known() -> None:
    """Such as the vectors of a spectral norm, beside the weight or in a layer of their own."""
    vector = parameter("fc", "", 6, trained=False, name="u")
    elsewhere = parameter("norm", "", 6, trained=False, name="u")
    found = pairs(
        model({"fc": "linear"}, [*linear("fc", 6), vector]),
        model({"norm": "", "fc": "linear"}, [elsewhere, *linear("fc", 6)]),
    )
    assert found == {"fc.weight": "fc.weight", "fc.bias": "fc.bias", "fc.u": "norm.u"}


def test_what_has_no_counterpart_comes_before_what_has_several() -> None:
    """And a scale is never offered for a running mean."""
    one, other = (
        [parameter(layer, role, 6) for layer in layers for role in ("scale", "mean")]
        for layers in ("ab", "cd")
    )
    ours = model(dict.fromkeys("ab", "batch_norm"), one)
    theirs = model(
        {**dict.fromkeys("cd", "batch_norm"), "fc": "linear"}, [*other, *linear("fc", 3)]
    )
    lines = propose(ours, theirs, NAMES).undecided
    assert ["has no counterpart" in line for line in lines] == [True] * 2 + [False] * 4
    assert "a.scale of batch_norm, [6] could be c.scale or d.scale" in lines[2]


def linear(layer: str, outputs: int) -> list[ParameterDescription]:
    return [parameter(layer, "weight", outputs, 8), parameter(layer, "bias", outputs)]


#: A linear layer with an addition of low rank.
PARTS = {"base": (8, 8), "lora_a": (2, 8), "lora_b": (8, 2)}
ATTENTION = model(
    {"attn": "attention"},
    [
        parameter("attn", "input_weight", 24, 8),
        parameter("attn", "input_bias", 24),
        parameter("attn", "output_weight", 8, 8),
        parameter("attn", "output_bias", 8),
    ],
)
WRITTEN = [
    ("block.q_proj", "block.k_proj", "block.v_proj", "block.out_proj"),
    ("query", "key", "value", "output"),
    ("a.to_q", "a.to_k", "a.to_v", "a.to_out.0"),
    ("block.wq", "block.wk", "block.wv", "block.wo"),
    ("attn.query", "attn.key", "attn.value", "attn.attention_output"),
]


@pytest.mark.parametrize("layers", WRITTEN, ids=lambda layers: layers[0])
def test_attention_of_four_matrices_is_joined_by_the_names(layers: tuple[str, ...]) -> None:
    parameters = [each for layer in layers for each in linear(layer, 8)]
    joined = with_attention_joined(model(dict.fromkeys(layers, "linear"), parameters))
    assert joined is not None
    found = pairs(joined, ATTENTION)
    q, k, v, out = layers
    assert found[f"{q}.weight | {k}.weight | {v}.weight"] == "attn.input_weight"
    assert found[f"{out}.bias"] == "attn.output_bias"


def test_heads_may_share_keys_and_values() -> None:
    sizes = {"q_proj": 16, "kv_proj": 8, "o_proj": 8}
    parameters = [each for layer, size in sizes.items() for each in linear(layer, size)]
    joined = with_attention_joined(model(dict.fromkeys(sizes, "linear"), parameters))
    assert joined is not None
    assert pairs(joined, ATTENTION)["q_proj.weight | kv_proj.weight"] == "attn.input_weight"


def test_additions_of_low_rank_are_matched_whenever_they_are_called() -> None:
    first, last = (
        [parameter(f"{layer}.{part}", "weight", *shape) for part, shape in PARTS.items()]
        for layer in ("one", "two")
    )
    layers = [f"{layer}.{part}" for layer in ("one", "two") for part in PARTS]
    ours = model(dict.fromkeys(layers, "linear"), first + last)
    order = ("lora_a", "lora_b", "base")
    ours = replace(ours, calls=[f"{layer}.{part}" for layer in ("one", "two") for part in order])
    held = [
        parameter(layer, role, *shape)
        for layer in ("x", "y")
        for role, shape in zip(("weight", "low-rank a weight", "low-rank b weight"), PARTS.values())
    ]
    found = pairs(ours, model({"x": "linear", "y": "linear"}, held))
    assert found["two.lora_a.weight"] == "y.low-rank_a_weight"
    assert found["one.base.weight"] == "x.weight"


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("sizes", "ways"), [((8, 8), 2), ((8, 6), 1), ((8,), 1)])
def test_a_stacked_parameter_is_paired_with_its_slices(
    turned: bool, sizes: tuple[int, ...], ways: int
) -> None:
    apart = [parameter(f"layers.{number}", "weight", *sizes) for number in range(3)]
    stack = parameter("stack", "", 3, *sizes[::-1], name="kernel")
    sides = ([stack], apart) if turned else (apart, [stack])
    (choice,) = pair_stacked(*sides)
    assert len(choice) == ways
    slices = np.random.default_rng(0).standard_normal((3, *sizes))
    (pair,) = choice[-1]
    lying = slices.swapaxes(-1, -2) if len(sizes) > 1 else slices
    if turned:
        carried = pair.to_target(lying)
        assert all((carried[f"layers.{k}.weight"] == slices[k]).all() for k in range(3))
        assert (pair.bring_back(pair.carry(lying)) == lying).all()
    else:
        whole = pair.of_source({f"layers.{k}.weight": slices[k] for k in range(3)})
        assert whole is not None
        assert (pair.to_target(whole)["stack.kernel"] == lying).all()
        assert (pair.bring_back(pair.carry(whole)) == whole).all()


def test_two_stacked_parameters_may_lie_either_way() -> None:
    own, other = (parameter(name, "", 3, 8, 8, name="kernel") for name in ("one", "other"))
    (choice,) = pair_stacked([own], [other])
    slices = np.random.default_rng(0).standard_normal((3, 8, 8))
    carried = [way[0].to_target(slices)["other.kernel"] for way in choice]
    assert (carried[0] == slices).all() and (carried[1] == slices.swapaxes(1, 2)).all()
    assert (choice[1][0].bring_back(carried[1]) == slices).all()
    square = [parameter(name, "", 8, 8, name="kernel") for name in ("one", "other")]
    assert not [*pair_stacked(square[:1], square[1:])]
    apart = [parameter(f"layers.{number}", "weight", 8, 8) for number in range(3)]
    assert len([*pair_stacked([own], [other, *apart])]) == 1
    assert not [*pair_stacked([own], [replace(other, trained=False)])]


def test_stacked_parameters_of_one_shape_are_paired_by_name_or_every_way_is_tried() -> None:
    apart = [
        parameter(f"blocks.{number}.{name}", "weight", 8, 8)
        for number in range(3)
        for name in ("up", "down")
    ]
    named, unnamed = (
        [parameter("stack", "", 3, 8, 8, name=name) for name in names]
        for names in (("down_weight", "up_weight"), ("first", "second"))
    )
    (choice,) = pair_stacked(apart, named)
    assert len(choice) == 4
    assert {pair.source.name[:11]: pair.target.name for pair in choice[0]} == {
        "blocks.0.up": "stack.up_weight",
        "blocks.0.do": "stack.down_weight",
    }
    (choice,) = pair_stacked(apart, unnamed)
    assert len(choice) == 8
    assert all(nearest([choice], lambda ways, way=way: ways != way) == way for way in choice)
    many = [parameter("stack", "", 3, 8, 8, name=f"m{number}") for number in range(5)]
    apart = [parameter(f"blocks.{n}.l{k}", "weight", 8, 8) for n in range(3) for k in range(5)]
    refused = propose(model({}, apart), model({}, many), NAMES)
    assert not refused.pairs + refused.choices and len(refused.undecided) == 20


def test_stacked_parameters_have_words_of_their_own() -> None:
    kinds = {"ln": ("scale", "bias"), "fc": ("weight", "bias")}
    apart = [
        parameter(f"blocks.{number}.{kind}{place}", role, 8)
        for number in range(2)
        for place in (1, 2)
        for kind, roles in kinds.items()
        for role in roles
    ]
    names = ("ln1_gamma", "ln1_beta", "fc1_w", "fc1_b", "ln2_scale", "ln2_offset", "fc2_kernel")
    stacks = [parameter("stack", "", 2, 8, name=name) for name in (*names, "fc2_bias")]
    ((way,),) = pair_stacked(apart, stacks)
    assert [pair.target.name.removeprefix("stack.") for pair in way] == [*names, "fc2_bias"]


def test_a_layer_that_holds_the_parts_of_another_is_its_counterpart() -> None:
    parts = [parameter(f"block.{name}", "weight", 8, 8) for name in ("q", "k")]
    whole = parameter("attn", "input_weight", 16, 8)
    joined = Pair(join(parts), whole, "", source_parts=tuple(parts))
    out, head = parameter("block.out", "weight", 8, 8), parameter("head", "weight", 3, 8)
    found = [Pair(out, parameter("attn", "output_weight", 8, 8), ""), Pair(head, head, "")]
    assert owner_pairs([joined, *found]) == {"block": "attn", "head": "head"}
    norm = parameter("block.norm", "scale", 8)
    assert "block" not in owner_pairs([joined, *found, Pair(norm, norm, "")])


def test_linear_layers_without_such_names_are_not_joined() -> None:
    layers = ("first", "second", "third", "output")
    parameters = [each for layer in layers for each in linear(layer, 8)]
    assert with_attention_joined(model(dict.fromkeys(layers, "linear"), parameters)) is None


def test_joined_parameters_are_carried_and_split() -> None:
    parts = tuple(parameter(layer, "weight", 2, 3) for layer in ("q", "k"))
    pair = Pair(join(parts), parameter("attn", "input_weight", 4, 3), "", source_parts=parts)
    arrays = {"q.weight": np.arange(6.0).reshape(2, 3), "k.weight": np.ones((2, 3))}
    whole = pair.of_source(arrays)
    assert whole is not None and whole.shape == (4, 3)
    split = pair.to_source(whole)
    assert all((split[name] == array).all() for name, array in arrays.items())
    assert pair.of_source({"q.weight": arrays["q.weight"]}) is None
    assert list(pair.to_target(whole)) == ["attn.input_weight"]


def test_parameters_of_one_value_are_varied_and_others_left() -> None:
    described = [
        parameter("fc", "weight", 3, 3),
        parameter("fc", "bias", 3),
        parameter("bn", "variance", 3, trained=False),
        parameter("own", "", 3, trained=False, name="table"),
    ]
    weights = {
        "fc.weight": np.arange(9.0).reshape(3, 3),
        "fc.bias": np.zeros(3),
        "bn.variance": np.ones(3),
        "own.table": np.ones(3),
    }
    found = varied(weights, {each.name: each for each in described}, seed=0)
    assert np.unique(found["fc.bias"]).size == 3
    assert np.unique(found["bn.variance"]).size == 3 and (found["bn.variance"] > 0).all()
    for name in ("fc.weight", "own.table"):
        assert found[name] is weights[name]
