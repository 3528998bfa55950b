"""Connectionist temporal classification: the forward and backward variables of Graves et al. 2006, section 4.

A sample of n labels has 2n + 1 states: its labels, and a blank before, between and after them. A path goes from
one of the first two states to one of the last two; in a step it stays, goes one state on, or two if these are
different labels with a blank between.
"""

from __future__ import annotations

from dlb_graph.layers.base import Graph
from dlb_graph.layers.numbers import Array, np
from dlb_graph.losses.base import LABELS, LOSS, Loss, Shape, ratio

__all__ = ["CTC"]

#: Stands for minus infinity in ONNX, whose operators subtract two of them.
_NEVER = -1e30


class CTC(Loss, tag="ctc", kw_only=True, frozen=True):
    """Connectionist temporal classification, averaged over samples.

    (Graves et al. 2006, doi:10.1145/1143844.1143891.) Outputs are logits [T, classes] a sample, and labels are
    fewer than steps. A path chooses a class for each step; without repetitions and then without the class
    ``blank``, it is a sequence of labels. The loss of a sample is minus the logarithm of the probability of all
    paths that are its labels.

    It is not divided by the number of labels, as by torch.nn.CTCLoss with reduction ``mean``; tf.nn.ctc_loss,
    gluon.loss.CTCLoss and chainer.functions.connectionist_temporal_classification do not divide either.

    Attributes:
        most_labels: of a sample.
        blank: the class that is no label.
    """

    most_labels: int
    blank: int = 0

    targets = "label_sequence"

    def target_shape(self, outputs: Shape) -> Shape:
        return (self.most_labels,)

    def fault(self, outputs: Shape) -> str:
        if len(outputs) != 2:
            return f"the last layer gives {list(outputs)} a sample, and ctc reads [T, classes]"
        steps, classes = outputs
        if not 0 <= self.blank < classes:
            return f"loss.blank = {self.blank} must be one of the {classes} classes, 0 to {classes - 1}"
        if not 1 <= self.most_labels <= steps:
            return (
                f"loss.most_labels = {self.most_labels} must be from 1 to the {steps} steps of the outputs: "
                "each label takes a step"
            )
        return "" if classes > 1 else "the last layer gives one class, and one is the blank"

    def value_and_gradient(self, outputs: Array, targets: Array) -> tuple[float, Array]:
        probabilities, expected, losses = self._expected(outputs, targets)
        gradient = (probabilities - expected) / outputs.dtype.type(len(outputs))
        return float(losses.mean()), gradient

    def difference(self, outputs: Array, base: Array, targets: Array) -> float:
        """The logarithm of the mean of exp(-d) over the paths of ``base``, d what they differ by.

        The steps of a path are no longer independent. So both losses are subtracted, in float64.
        """
        pair = (each.astype(np.float64) for each in (outputs, base))
        (_, _, first), (_, _, second) = (self._expected(each, targets) for each in pair)
        return float((first - second).mean())

    def cancellation(self, outputs: Array, targets: Array) -> float:
        """The gradient is the difference of the probabilities of classes, and those on the labels' paths."""
        probabilities, expected, _ = self._expected(outputs.astype(np.float64), targets)
        return ratio(probabilities, probabilities - expected)

    def accuracy(self, outputs: Array, targets: Array) -> float:
        """The share of samples whose most probable classes are the labels; infinite outputs are wrong."""
        best = outputs.argmax(axis=-1)
        kept = best != self.blank
        kept[:, 1:] &= best[:, 1:] != best[:, :-1]
        finite = np.isfinite(outputs).all(axis=(1, 2))
        right = [
            np.array_equal(row[chosen], labels[labels >= 0])
            for row, chosen, labels in zip(best, kept, targets)
        ]
        return float((finite & np.array(right)).mean())

    def _states(self, targets: Array) -> tuple[Array, Array, Array]:
        """The class of each state [N, S], whether a path may skip the state before, and the last state."""
        classes = np.full((len(targets), 2 * targets.shape[1] + 1), self.blank)
        classes[:, 1::2] = np.where(targets < 0, self.blank, targets)
        skips = np.zeros(classes.shape, bool)
        skips[:, 2:] = (classes[:, 2:] != classes[:, :-2]) & (classes[:, 2:] != self.blank)
        return classes, skips, 2 * (targets >= 0).sum(axis=1)

    def _expected(self, outputs: Array, targets: Array) -> tuple[Array, Array, Array]:
        """Probabilities of classes, those on the paths of the labels, both [N, T, classes], and losses [N]."""
        shifted = outputs - outputs.max(axis=-1, keepdims=True)
        logarithms = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
        classes, skips, last = self._states(targets)
        samples, steps, _ = outputs.shape
        never = np.full((samples, 2), -np.inf, outputs.dtype)
        emitted = np.take_along_axis(logarithms, np.repeat(classes[:, None], steps, 1), axis=2)
        state = np.arange(classes.shape[1])
        ends = (state == last[:, None]) | (state == last[:, None] - 1)
        forward, backward = np.empty_like(emitted), np.empty_like(emitted)
        forward[:, 0] = np.where((state < 2) & (state <= last[:, None]), emitted[:, 0], -np.inf)
        backward[:, -1] = np.where(ends, outputs.dtype.type(0), -np.inf)
        with np.errstate(invalid="ignore", divide="ignore"):
            for step in range(1, steps):
                before = np.hstack([never, forward[:, step - 1]])
                two = np.where(skips, before[:, :-2], -np.inf)
                forward[:, step] = _sum(before[:, 2:], before[:, 1:-1], two) + emitted[:, step]
            for step in reversed(range(steps - 1)):
                after = np.hstack([backward[:, step + 1] + emitted[:, step + 1], never])
                two = np.where(np.hstack([skips[:, 2:], never > 0]), after[:, 2:], -np.inf)
                backward[:, step] = _sum(after[:, :-2], after[:, 1:-1], two)
            ended = np.where(ends, forward[:, -1], -np.inf)
            whole = np.logaddexp.reduce(ended, axis=1)
            shares = np.exp(forward + backward - whole[:, None, None])
        expected = np.zeros_like(outputs)
        for number in range(classes.shape[1]):
            at = np.broadcast_to(classes[:, None, number : number + 1], (samples, steps, 1))
            more = np.take_along_axis(expected, at, 2) + shares[:, :, number : number + 1]
            np.put_along_axis(expected, at, more, 2)
        return np.exp(logarithms), expected, -whole

    def add_nodes(self, graph: Graph, outputs: str, shape: tuple[int, ...]) -> None:
        """The forward variables, a few nodes for each step."""
        within, (steps, _), count = graph.within(LOSS), shape, 2 * self.most_labels + 1
        add, held = within.add, within.held

        def cut(name: str, start: int, end: int) -> str:
            """Some states of [N, states]."""
            return add("Slice", name, held([start]), held([end]), held([1]))

        def step_of(name: str, number: int) -> str:
            """One step of [N, T, states]."""
            return add("Gather", name, held(number), axis=1)

        is_label = add("GreaterOrEqual", LABELS, held(0))
        blank = held(self.blank)
        labels = add("Unsqueeze", add("Where", is_label, LABELS, blank), held([2]))
        blanks = add("Add", add("Mul", labels, held(0)), blank)
        pairs = add("Reshape", add("Concat", blanks, labels, axis=2), held([0, count - 1]))
        classes = add("Concat", pairs, cut(pairs, 0, 1), axis=1)
        inner = cut(classes, 2, count)
        differs = add("Not", add("Equal", inner, cut(classes, 0, count - 2)))
        skips = add("And", differs, add("Not", add("Equal", inner, blank)))
        never, none = held(_NEVER), held(0.0)
        barred = add("Where", skips, none, never)
        # One state that no path reaches, for each sample.
        missing = add("Where", add("Less", cut(classes, 0, 1), held(0)), none, never)
        places = add(
            "Add", add("Unsqueeze", classes, held([1])), held(np.zeros((1, steps, 1), int))
        )
        # The logarithm of a softmax may be that of a share that has underflowed.
        shifted = add("Sub", outputs, add("ReduceMax", outputs, axes=[-1], keepdims=1))
        total = add("ReduceSum", add("Exp", shifted), held([-1]), keepdims=1)
        logarithms = add("Sub", shifted, add("Log", total))
        emitted = add("GatherElements", logarithms, places, axis=2)
        starts = held(np.where(np.arange(count) < 2, 0.0, _NEVER)[None])
        state = add("Add", step_of(emitted, 0), starts)
        for step in range(1, steps):
            one = add("Concat", missing, cut(state, 0, count - 1), axis=1)
            two = add("Add", cut(state, 0, count - 2), barred)
            two = add("Concat", missing, missing, two, axis=1)
            # The logarithm of a sum, of the logarithms of what is added.
            ways = add(
                "Concat", *(add("Unsqueeze", way, held([0])) for way in (state, one, two)), axis=0
            )
            reached = add("ReduceLogSumExp", ways, axes=[0], keepdims=0)
            state = add("Add", reached, step_of(emitted, step))
        counted = within.cast(is_label, np.int64)
        number = add("ReduceSum", counted, held([1]), keepdims=1)
        last, states = add("Mul", number, held(2)), held(np.arange(count)[None])
        ends = [add("Equal", states, each) for each in (last, add("Sub", last, held(1)))]
        ended = add("Where", add("Or", *ends), state, never)
        whole = add("ReduceLogSumExp", ended, axes=[1], keepdims=0)
        within.end("ReduceMean", add("Neg", whole), keepdims=0)


def _sum(*logarithms: Array) -> Array:
    """The logarithm of a sum, of the logarithms of what is added."""
    return np.asarray(np.logaddexp.reduce(logarithms, axis=0))
