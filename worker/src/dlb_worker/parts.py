"""The parts of a batch: those that a step takes one after the other, and those of several workers."""

from typing import Any, Dict, Iterable, Iterator, List, Mapping, Sequence, Tuple

__all__ = ["in_parts", "mean_gradients", "rows_by_rank", "shares"]


def in_parts(count: int, *arrays: Any) -> Iterator[List[Any]]:
    """Each part of some arrays [batch, ...], native or not, in their order.

    Args:
        count: how many parts, of equal size; it divides the batch.
    """
    size = arrays[0].shape[0] // count
    for part in range(count):
        yield [array[part * size : (part + 1) * size] for array in arrays]


def shares(samples: int, workers: int, parts: int = 1) -> Tuple[int, ...]:
    """How many samples of a batch each worker has, the first ones the most.

    Args:
        parts: each worker takes its share in so many equal parts; the number divides the batch.
    """
    each, more = divmod(samples // parts, workers)
    return tuple(parts * (each + (rank < more)) for rank in range(workers))


def rows_by_rank(sizes: Sequence[int], workers: int) -> List[slice]:
    """Which samples of a batch each worker has. Of fewer shares than workers, neighbours have the same.

    Args:
        sizes: of the shares, whose number divides that of the workers.
    """
    own = [rank * len(sizes) // workers for rank in range(workers)]
    return [slice(sum(sizes[:share]), sum(sizes[: share + 1])) for share in own]


def mean_gradients(parts: Iterable[Mapping[str, Any]]) -> Dict[str, Any]:
    """The mean of each array, by name, of the parts' gradients and loss."""
    total: Dict[str, Any] = {}
    count = 0
    for part in parts:
        count += 1
        total = {name: total[name] + array if total else array for name, array in part.items()}
    return {name: array / count for name, array in total.items()} if count > 1 else total
