"""Where a framework keeps a canonical parameter, and how the two layouts map to each other."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Dict, Mapping, Sequence, Tuple, Union

from dlb_worker.model import ATTENTION_MAPS

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray
else:  # A registry is read by the command, which imports no NumPy.
    Array = Any

__all__ = [
    "AS_IS",
    "TRANSPOSED_CONV",
    "Kinds",
    "Mappings",
    "NativeParameter",
    "ParameterMapping",
    "attention_locations",
    "gru_mappings",
    "kind_among",
    "length_times_direction",
    "location",
    "low_rank",
    "lstm_gates",
    "recurrent_mappings",
    "reordered",
    "stacked",
    "summed",
    "user_parameter",
]

#: A change of layout.
Layout = Callable[[Array], Array]


def unchanged(array: Array) -> Array:
    """The array itself: both layouts are the same."""
    return array


@dataclass(frozen=True)
class ParameterMapping:
    """One canonical parameter: the attributes that hold it, and the maps between the layouts.

    Attributes:
        attributes: of the native layer. Dots lead into its parts.
        to_canonical: native arrays to the canonical one.
        to_native: the canonical array to the native ones.
        to_gradient: native gradients to the canonical one.
        separator: what stands between the attributes' names in a user's parameter.
    """

    attributes: Tuple[str, ...]
    to_canonical: Callable[[Sequence[Array]], Array]
    to_native: Callable[[Array], Sequence[Array]]
    to_gradient: Callable[[Sequence[Array]], Array]
    separator: str = " + "

    @property
    def attribute(self) -> str:
        """The first attribute, which is the only one of a :func:`location`."""
        return self.attributes[0]


#: The mappings of a layer's parameters, by role.
Mappings = Mapping[str, ParameterMapping]
#: By the type of a native layer, or by a tuple of types: the layer kind that it is, and its mappings or
#: a function of the layer that returns them.
Kinds = Mapping[Any, Tuple[str, Union[Mappings, Callable[[Any], Mappings]]]]


def location(
    attribute: str, to_native: Layout = unchanged, to_canonical: Layout = unchanged
) -> ParameterMapping:
    """A parameter that one attribute holds.

    Args:
        attribute: of the native layer.
        to_native: the map from the canonical layout; the identity where they are the same.
        to_canonical: the map back.
    """

    def canonical(arrays: Sequence[Array]) -> Array:
        return to_canonical(arrays[0])

    return ParameterMapping((attribute,), canonical, lambda array: [to_native(array)], canonical)


#: A parameter without a known layout: it crosses as it is.
AS_IS = location("")


#: A transposed convolution that keeps its weight as ONNX does, [in, out / groups, ...].
TRANSPOSED_CONV = {"weight": location("weight"), "bias": location("bias")}


def length_times_direction(
    parts: Tuple[str, str], read: Callable[[str], Array]
) -> ParameterMapping:
    """A weight that a layer trains as its length and its direction (weight normalisation).

    The weight is ``g * v / norm(v)``, with a norm for each entry of g (Salimans and Kingma 2016, section 2).
    Its gradient follows from those of g and v.

    Args:
        parts: the attributes that hold g and v. Along axes where g has size 1, it is the norm of v; if it
            has another number of axes, along all.
        read: the array of one of them, as it is now.
    """
    length, direction = parts

    def norms(direction_array: Array, length_array: Array) -> Array:
        import numpy as np

        axes = tuple(
            axis
            for axis in range(direction_array.ndim)
            if length_array.ndim != direction_array.ndim or length_array.shape[axis] == 1
        )
        norm: Array = np.sqrt((direction_array**2).sum(axis=axes, keepdims=True))
        return norm

    def canonical(arrays: Sequence[Array]) -> Array:
        import numpy as np

        g, v = arrays
        norm = norms(v, g)
        # As it was loaded, bit for bit, where g is the norm of v.
        weight: Array = np.where(g.reshape(norm.shape) == norm, v, g.reshape(norm.shape) * v / norm)
        return weight

    def native(array: Array) -> Sequence[Array]:
        return [norms(array, read(length)).reshape(read(length).shape), array]

    def gradient(arrays: Sequence[Array]) -> Array:
        g, v = read(length), read(direction)
        norm = norms(v, g)
        whole: Array = arrays[0].reshape(norm.shape) * v / norm
        whole += norm / g.reshape(norm.shape) * arrays[1]
        return whole

    return ParameterMapping((length, direction), canonical, native, gradient, " * ")


def summed(first: str, second: str, like: ParameterMapping) -> ParameterMapping:
    """Two attributes that the layer adds, such as the two biases of an LSTM.

    The first takes the sum and the second zero. Each one's gradient is the gradient of the sum.

    Args:
        like: the mapping of one of them.
    """

    def native(array: Array) -> Sequence[Array]:
        import numpy as np

        (whole,) = like.to_native(array)
        return [whole, np.zeros_like(whole)]

    return ParameterMapping(
        (first, second),
        lambda arrays: like.to_canonical([arrays[0] + arrays[1]]),
        native,
        lambda arrays: like.to_canonical(arrays[:1]),
    )


def stacked(
    attributes: Sequence[str],
    like: Union[ParameterMapping, Sequence[ParameterMapping]] = AS_IS,
    rows: Sequence[int] = (),
) -> ParameterMapping:
    """Attributes that lie one after another on the first axis of the canonical parameter.

    Args:
        like: the mapping of each of them, or one mapping for each.
        rows: how many entries of that axis each has; by default, all have as many.
    """
    each_like = [like] * len(attributes) if isinstance(like, ParameterMapping) else like
    ends = [sum(rows[:place]) for place in range(1, len(rows))] if rows else len(attributes)

    def canonical(arrays: Sequence[Array]) -> Array:
        import numpy as np

        return np.concatenate([own.to_canonical([each]) for own, each in zip(each_like, arrays)])

    def native(array: Array) -> Sequence[Array]:
        import numpy as np

        return [own.to_native(part)[0] for own, part in zip(each_like, np.split(array, ends))]

    return ParameterMapping(tuple(attributes), canonical, native, canonical, " | ")


def low_rank(
    shapes: Mapping[str, Sequence[int]], kind: str = ""
) -> Dict[str, Tuple[str, ParameterMapping]]:
    """Pairs of arrays that make a weight of low rank (LoRA, Hu et al. 2021), by name: role and mapping.

    Canonical are those of two linear layers, [rank, in] and [out, rank]; of two convolutions, [rank, in, ...]
    and [out, rank, 1, ...]; and of an attention whose heads share the second, [rank, in, heads], [out, rank].
    Each has the part that it is in its role: a layer may hold several. What the rank is tells how they lie.

    Args:
        shapes: of the parameters of one layer whose roles are not known, by name.
        kind: of the layer, if it is known.
    """
    from dlb_worker.arrays import product

    found = {}
    for first, last in (("a", "b"), ("down", "up")):
        for name, shape in shapes.items():
            other = name[: -len(first)] + {name[-len(first) :]: last}.get(first, last.upper())
            second = tuple(shapes.get(other, ()))
            axes = len(shape)
            if not name.lower().endswith(first) or axes < 2 or len(second) != 2:
                continue
            windows = (1,) * (axes - 2) if kind == "conv" or axes > 3 else ()
            if shape[-1] == second[0] and second[0] < min(product(shape[:-1]), second[1]):
                order = (
                    (axes - 1, axes - 2, *range(axes - 2))
                    if windows
                    else (axes - 1, *range(axes - 1))
                )
                mappings = _turned(order, shape, "output" in name), _turned((1, 0), second)
            elif shape[0] == second[1] and second[1] < min(product(shape[1:]), second[0]):
                mappings = AS_IS, AS_IS
            else:
                continue
            mappings = mappings[0], _with_axes(mappings[1], windows)
            found.update(
                {
                    each: (f"low-rank {each} weight", mapping)
                    for each, mapping in zip((name, other), mappings)
                }
            )
    return found


def _turned(order: Sequence[int], shape: Sequence[int], flat: bool = False) -> ParameterMapping:
    """An array with its axes in a canonical order; flat if canonical has one axis after the first."""
    sizes = [shape[axis] for axis in order]
    back = sorted(range(len(order)), key=lambda axis: order[axis])
    return location(
        "",
        lambda array: array.reshape(sizes).transpose(back),
        lambda array: array.transpose(order).reshape((sizes[0], -1) if flat else sizes),
    )


def _with_axes(mapping: ParameterMapping, axes: Sequence[int]) -> ParameterMapping:
    """A mapping whose canonical array has more axes, of size 1."""
    if not axes:
        return mapping

    def canonical(arrays: Sequence[Array]) -> Array:
        whole = mapping.to_canonical(arrays)
        return whole.reshape((*whole.shape, *axes))

    def native(array: Array) -> Sequence[Array]:
        return mapping.to_native(array.reshape(array.shape[:2]))

    return ParameterMapping(mapping.attributes, canonical, native, canonical)


def reordered(parts: int, order: Sequence[int]) -> Layout:
    """Parts of equal size on the first axis in another order, such as the gates of an LSTM."""

    def change(array: Array) -> Array:
        import numpy as np

        pieces = np.split(array, parts)
        return np.concatenate([pieces[part] for part in order])

    return change


def attention_locations(weight: str, bias: str) -> Dict[str, ParameterMapping]:
    """An attention that has a part for each linear map, called ``query``, ``key``, ``value``, ``output``.

    Args:
        weight: the attribute of a part that holds its weight.
        bias: likewise its bias.
    """
    attributes = {"weight": weight, "bias": bias}
    return {
        f"{name}_{role}": location(f"{name}.{attribute}")
        for name in ATTENTION_MAPS
        for role, attribute in attributes.items()
    }


def lstm_gates(attribute: str) -> ParameterMapping:
    """The gates of an LSTM that keeps them as input, forget, cell, output.

    ONNX's order is input, output, forget, cell.
    """
    return location(attribute, reordered(4, (0, 2, 3, 1)), reordered(4, (0, 3, 1, 2)))


def gru_mappings(
    weights: Tuple[str, str], biases: Tuple[str, str], gates: Tuple[int, int, int]
) -> Dict[str, ParameterMapping]:
    """A GRU whose reset gate acts after the recurrent product, ONNX's ``linear_before_reset``.

    Canonical weights are [3 * hidden, ...] in ONNX's order of gates: update, reset, hidden. The
    biases of both products lie one below the other, [2, 3 * hidden].

    Args:
        weights: the attributes, of the input and of the last step.
        biases: likewise.
        gates: the place of each of ONNX's gates among the framework's.
    """
    to_canonical = reordered(3, gates)
    to_native = reordered(3, [gates.index(gate) for gate in range(3)])

    def both(arrays: Sequence[Array]) -> Array:
        import numpy as np

        return np.stack([to_canonical(array) for array in arrays])

    return {
        "input_weight": location(weights[0], to_native, to_canonical),
        "recurrent_weight": location(weights[1], to_native, to_canonical),
        "bias": ParameterMapping(
            biases, both, lambda array: [to_native(each) for each in array], both, " | "
        ),
    }


def recurrent_mappings(
    layers: int, directions: int, mappings: Callable[[int, int], Mappings]
) -> Mappings:
    """Mappings of a recurrent layer that holds several, with roles such as "layer 1 backward bias".

    Args:
        mappings: of one layer and direction, both counted from 0.
    """
    return {
        f"layer {layer} " * (layer > 0) + "backward " * direction + role: mapping
        for layer in range(layers)
        for direction in range(directions)
        for role, mapping in mappings(layer, direction).items()
    }


def kind_among(
    kinds: Kinds, layer: Any, is_kind: Callable[[Any, Any], bool] = isinstance
) -> Tuple[str, Mappings]:
    """The layer kind that a native layer is, and its mappings; "" and none where it is not known.

    Args:
        kinds: the first entry that matches counts.
        is_kind: whether a layer is one of a type.
    """
    for native_type, (kind, mappings) in kinds.items():
        if is_kind(layer, native_type):
            return kind, mappings(layer) if callable(mappings) else mappings
    return "", {}


@dataclass(frozen=True)
class NativeParameter:
    """A parameter or state of a model, and the framework's objects that hold it.

    Attributes:
        name: unique in the model; ``layer.role`` in a built model.
        layer: name of the layer that owns it.
        role: the canonical parameter that it is; "" where a user's layer is not known.
        trained: whether training moves it by its gradient.
        natives: the framework's own objects, in the order of the mapping's attributes.
        mapping: between the layouts.
        frozen: whether it is a parameter that is not trained, of a user's model.
    """

    name: str
    layer: str
    role: str
    trained: bool
    natives: Tuple[Any, ...]
    mapping: ParameterMapping = AS_IS
    frozen: bool = False


def user_parameter(
    layer: str,
    role: str,
    trained: bool,
    natives: Mapping[str, Any],
    mapping: ParameterMapping = AS_IS,
    frozen: bool = False,
) -> NativeParameter:
    """A parameter that is named for its layer and the attributes that hold it.

    Args:
        natives: by attribute, in the order of the mapping's.
    """
    names = [f"{layer}.{attribute}".lstrip(".") for attribute in natives]
    return NativeParameter(
        mapping.separator.join(names),
        layer,
        role,
        trained,
        tuple(natives.values()),
        mapping,
        frozen,
    )
