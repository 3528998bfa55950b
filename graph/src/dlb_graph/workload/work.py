"""The work of one training step: operations and bytes, counted on the description of the model.

The counts follow from the workload alone, so they are the same for every framework. A framework may do more
(it reads an array twice) or, by another algorithm, less (Winograd's convolutions multiply less often).

**Operations** are those of matrix products: convolutions, linear, recurrent and attention layers. A
multiply-add counts as 2, a product with a padded zero counts, and so does the half of causal attention that is
masked. The backward pass has a product for each weight's gradient, and one for each input whose gradient is
needed: none for the model's own input. Nothing is computed twice. The update has the arithmetic of the
optimizer's definition. Biases, activations, poolings and normalisation have no operations here, as usual
(Chowdhery et al., arXiv:2204.02311, appendix B); what they cost is to move bytes.

**Bytes** are the least traffic between memory and processor, if nothing stays in a cache from one use to the
next, and everything that works on single elements is done where its input is made:

- Forward: each weight is read. Each value is written once, and read by every layer that reads it. Activations,
  dropout, sums and products of elements are done in place. Layers that only rearrange values cost nothing.
- Backward: the gradient of each value is written once and read once. Layers with weights, normalisation,
  products and GELU read their inputs again, max pooling as many places as it has outputs. A weight is read if
  its input needs a gradient; its gradient is written.
- Update: each gradient is read, each weight and each number of the optimizer's state is read and written.
  Clipping reads the gradients once more.

Of an attention, queries, keys, values and their weighted sums are values, and the products of steps with steps
are not (Dao et al., arXiv:2205.14135). Of an LSTM, gates and cells are; of a GRU, gates
and the product of the reset gate. Dropout masks are left out.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from dlb_graph.losses import Loss
from dlb_graph.optimizers import Optimizer
from dlb_graph.workload.model import Model, Node, Workload
from dlb_graph.workload.shapes import (
    infer_shapes,
    multiply_adds,
    parameter_shapes,
    state_names,
    tied_to,
    trained_names,
)

__all__ = ["StepWork", "Work", "step_work"]

#: Bytes of an integer, such as a label.
INDEX_BYTES = 8


@dataclass(frozen=True)
class Work:
    """Floating-point operations, and bytes read and written."""

    operations: int
    bytes: int


@dataclass(frozen=True)
class StepWork:
    """The work of one training step."""

    forward: Work
    backward: Work
    update: Work

    @property
    def operations(self) -> int:
        """Operations of the whole step."""
        return sum(part.operations for part in (self.forward, self.backward, self.update))

    @property
    def bytes(self) -> int:
        """Bytes of the whole step."""
        return sum(part.bytes for part in (self.forward, self.backward, self.update))


def step_work(
    workload: Workload, batch_size: int, real_bytes: int = 4, value_bytes: int | None = None
) -> StepWork:
    """The work of one training step of a workload.

    Args:
        batch_size: samples of the step.
        real_bytes: bytes of a real number; 4 for float32.
        value_bytes: bytes of a number of a layer's value, if that is another type than the weights'.
    """
    of_values = real_bytes if value_bytes is None else value_bytes
    graph = _Graph(workload.model, workload.loss)
    real, index = graph.forward_traffic()
    forward = Work(
        batch_size * 2 * sum(graph.products.values()),
        of_values * batch_size * real
        + real_bytes * graph.weights_read()
        + INDEX_BYTES * batch_size * index,
    )
    values, weights = graph.backward_traffic()
    backward = Work(
        batch_size * graph.backward_operations(),
        of_values * batch_size * values + real_bytes * weights,
    )
    operations, numbers = _update_of_a_weight(workload.optimizer)
    sizes = {name: math.prod(graph.parameters[name]) for name in trained_names(workload.model)}
    decayed = sum(size for name, size in sizes.items() if workload.optimizer.decays(name))
    trained = sum(sizes.values())
    update = Work(trained * operations + 2 * decayed, real_bytes * trained * numbers)
    return StepWork(forward, backward, update)


class _Graph:
    """The layers that the output depends on. Traffic is that of one sample, in numbers."""

    def __init__(self, model: Model, loss: Loss) -> None:
        self.model, self.loss = model, loss
        self.shapes = infer_shapes(model)
        self.parameters = parameter_shapes(model)
        self.weights = defaultdict[str, dict[str, int]](dict)
        for name, shape in self.parameters.items():
            self.weights[name.partition(".")[0]][name] = math.prod(shape)
        self.states = set(state_names(model))
        nodes = {node.name: node for node in model.wired()}
        self.last = model.nodes[-1].name
        live = {self.last}
        for node in reversed(nodes.values()):
            if node.name in live:
                live.update(node.inputs)
        self.nodes = [node for node in nodes.values() if node.name in live]
        self.products = {
            name: count for name, count in multiply_adds(model).items() if name in live
        }
        self.readers = Counter(name for node in self.nodes for name in node.inputs)
        self.by_name = {node.name: node for node in self.nodes}
        #: Layers whose output depends on something that is trained, so that its gradient is needed.
        self.trained: set[str] = set()
        for node in self.nodes:
            own = any(name not in self.states for name in self._weights(node)) or tied_to(node)
            if own or self.trained.intersection(node.inputs):
                self.trained.add(node.name)

    def forward_traffic(self) -> tuple[int, int]:
        """Real numbers and integers that are read and written for each sample."""
        real, index = self._size(self.last), 0  # read by the loss, with its labels or targets
        targets = math.prod(self.loss.target_shape(self.shapes[self.last]))
        if self.loss.reads_integers:
            index += targets
        else:
            real += targets
        for node in self.nodes:
            read, written = self._inputs_read(node), self._written(node)
            if node.layer.looks_up:
                index += read
                read = written  # rows of the table
            real += read + written + 2 * self._within(node)
            if self._keeps_input_apart(node):
                real += self._size(node.inputs[0])
        return real, index

    def weights_read(self) -> int:
        """Weights and running statistics that the forward pass reads, and statistics that it writes."""
        count = 0
        for node in self.nodes:
            for name, size in self._weights(node).items():
                count += 2 * size if name in self.states else size
            if node.layer.looks_up:  # its rows were counted
                count -= self._matrices(node)
            elif tied_to(node):
                count += self._size(tied_to(node), of_table=True)
        return count

    def backward_traffic(self) -> tuple[int, int]:
        """Numbers for each sample, and numbers of weights and their gradients."""
        values = weights = 0
        for node in self.nodes:
            if node.name not in self.trained:
                continue
            values += 2 * self._written(node)
            if node.layer.reads_input_again:
                values += sum(self._size(name) for name in node.inputs)
            if node.layer.reads_output_again:
                values += self._size(node.name)
            # What is within is read again, and its gradient is written and read.
            values += 3 * self._within(node)
            for name, size in self._weights(node).items():
                weights += 0 if name in self.states else size
            if not node.layer.looks_up and self._needs_input_gradient(node):
                weights += self._matrices(node)
        return values, weights

    def backward_operations(self) -> int:
        """Operations of the backward pass of one sample."""
        count = 0
        for node in self.nodes:
            if node.name not in self.products or node.name not in self.trained:
                continue
            forward = 2 * self.products[node.name]
            # One product for the weights' gradient, one for the inputs'.
            count += 2 * forward
            if not self._needs_input_gradient(node):
                inputs = [self.shapes[name] for name in node.inputs]
                count -= 2 * node.layer.input_products(inputs, self.shapes[node.name])
            count -= 2 * node.layer.first_products()
        return count

    def _needs_input_gradient(self, node: Node) -> bool:
        return bool(self.trained.intersection(node.inputs))

    def _written(self, node: Node) -> int:
        """Numbers of a layer's output, if it does not lie where its input was."""
        if node.layer.rearranges:
            return 0
        if node.layer.elementwise and self._place(node):
            return 0
        return self._size(node.name)

    def _inputs_read(self, node: Node) -> int:
        """Numbers of a layer's inputs that it reads from memory."""
        if node.layer.rearranges:
            return 0
        place = self._place(node) if node.layer.elementwise else ""
        names = list(node.inputs)
        if place:
            names.remove(place)
        return sum(map(self._size, names))

    def _place(self, node: Node) -> str:
        """The input in whose place an elementwise layer writes; "" if others read all of them."""
        size = self._size(node.name)
        for name in node.inputs:
            if self._size(name) == size and self._is_read_once(name):
                return name
        return ""

    def _is_read_once(self, name: str) -> bool:
        node = self.by_name.get(name)
        if node is None or self.readers[name] > 1:
            return False
        if node.layer.rearranges:
            return all(map(self._is_read_once, node.inputs))
        return True

    def _keeps_input_apart(self, node: Node) -> bool:
        """Whether a layer in place must keep its input for the backward pass."""
        trained = node.name in self.trained
        return node.layer.keeps_input_apart and trained and bool(self._place(node))

    def _within(self, node: Node) -> int:
        """Numbers that a layer keeps between its parts."""
        return node.layer.numbers_within * self._size(node.name)

    def _weights(self, node: Node) -> Mapping[str, int]:
        return self.weights[node.owner]

    def _matrices(self, node: Node) -> int:
        """Numbers of a layer's weights that are matrices, shared ones included."""
        if tied_to(node):
            return self._size(tied_to(node), of_table=True)
        return sum(
            size
            for name, size in self._weights(node).items()
            if len(self.parameters[name]) > 1 and not name.endswith("bias")
        )

    def _size(self, name: str, of_table: bool = False) -> int:
        return math.prod(self.parameters[f"{name}.weight"] if of_table else self.shapes[name])


def _update_of_a_weight(optimizer: Optimizer) -> tuple[int, int]:
    """Operations for each trained weight, decay aside, and numbers that are read and written for it."""
    operations = 0
    numbers = 3  # the gradient, and the weight twice
    if optimizer.clip_norm or optimizer.clip_variable_norm:
        operations, numbers = operations + 3, numbers + 1
    if optimizer.clip_value:
        operations += 2
    return operations + optimizer.operations, numbers + 2 * len(optimizer.slots)
