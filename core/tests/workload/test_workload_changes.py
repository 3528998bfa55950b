"""Fields changed from the command line, and requests that make no workload."""

from __future__ import annotations

import pytest

from dlb.errors import RequestError
from dlb_graph import workload as W
from dlb_graph.workload import files, workload_hash
from dlb_graph.workload.changes import with_changes

LENET = files.load("lenet5")


def layer(workload: W.Workload, name: str) -> W.Layer:
    return next(node.layer for node in workload.model.nodes if node.name == name)


def test_nothing_changed_is_the_workload_itself() -> None:
    assert with_changes(LENET, ()) is LENET


def test_fields_are_changed_and_the_hash_with_them() -> None:
    found = with_changes(
        LENET,
        [
            "optimizer.type=adam",
            "optimizer.beta1=0.8",
            "data.name=mnist",
            "data.mean=[0.1]",
            "batch_size=7",
            "schedule.type=step",
            "schedule.milestones=[3, 5]",
            "model.nodes.fc1.layer.out_features=16",
            'model.nodes.conv1.layer.init={type="normal", std=0.01}',
            "model.nodes.relu1.layer={type='tanh'}",
            "title=a = b",
        ],
    )
    assert found.optimizer == W.Adam(beta1=0.8)
    assert found.data == W.Data(name="mnist", mean=(0.1,), std=LENET.data.std)
    assert found.schedule == W.Step(milestones=(3, 5))
    assert (found.batch_size, found.title) == (7, "a = b")
    assert layer(found, "fc1") == W.Linear(out_features=16)
    assert layer(found, "conv1").init == W.Normal(std=0.01)
    assert layer(found, "relu1") == W.Tanh()
    assert workload_hash(found) != workload_hash(LENET)
    assert with_changes(found, ["title="]).title == ""


#: What was asked for, and what the answer names.
REFUSED = {
    "batch_size": "FIELD=VALUE",
    "=3": "FIELD=VALUE",
    "size=3": "no field 'size'; did you mean 'batch_size'?; it has name, ",
    "optimizer.learning_rate.x=3": "optimizer.learning_rate has no field 'x'",
    "optimizer.lr=3": "optimizer: unknown field 'lr'; did you mean 'learning_rate'?; type 'sgd' needs learn",
    "optimizer.learning_rate=fast": "learning_rate",
    "optimizer.learning_rate=-1": "learning_rate",
    "optimizer.type=lion": "known: adadelta, adagrad, adam, adamax, adamw, rmsprop, sgd",
    "optimizer={type='rmsprop', epsilon_place='under'}": "epsilon_place",
    "optimizer={type='rmsprop', rho=1.0}": "optimizer.rho",
    "optimizer={type='adagrad', initial_accumulator=-1.0}": "initial_accumulator",
    "optimizer={type='adamw', clip_value=-1.0}": "clip_value",
    "optimizer={type='adamw', clip_norm=1.0, clip_value=1.0}": "set one of them to 0",
    "optimizer={type='adam', clip_value=1.0, clip_variable_norm=1.0}": "set one of them to 0",
    "optimizer={type='adam', accumulate=0}": "accumulate",
    "optimizer={type='adam', clip_variable_norm=-1.0}": "clip_variable_norm",
    "optimizer.weight_decay_on=biases": "weight_decay_on",
    "loss.class_weights=[1.0]": "one for each",
    "loss.class_weights=[0, 0, 0, 0, 0, 0, 0, 0, 0, 0]": "one above 0",
    "loss.ignore_index=4294967296": "loss.ignore_index",
    "loss.ignore_index=0.5": "ignore_index",
    "loss.type=mse": "known: absolute_error, binary_cross_entropy, ctc, huber, softmax_cross_entropy",
    "loss={type='squared_error', delta=1.0}": "type 'squared_error' has no fields",
    "loss={type='ctc'}": "most_labels",
    "loss={type='ctc', most_labels=2}": "ctc reads [T, classes]",
    "loss={type='huber', delta=0}": "loss.delta = 0.0 must be above 0",
    "loss={type='huber', delta=inf}": "loss.delta",
    "loss={type='huber', delta=nan}": "loss.delta",
    "schedule.type=decay": "start",
    "model.nodes.fc9.layer.bias=false": "no field 'fc9'; did you mean 'fc2'?; it has conv1, ",
    "model.nodes.fc1.layer.out_features=0": "fc1",
    "model.nodes.flatten=3": "nodes",
    "model.nodes=3": "nodes",
    "model.input.shape=[1, 2]": "conv1",
    "batch_size=0": "batch_size",
    "batch_size=1.5": "batch_size",
    "data.std=[0]": "std",
    "model.nodes.fc1.layer.init={type='normal', std=-1.0}": "fc1",
    "model.nodes.fc1.layer.init={type='fill', value=nan}": "fc1",
    "epochs=" + "[" * 5000: "epochs",
}


@pytest.mark.parametrize(("change", "named"), REFUSED.items())
def test_what_makes_no_workload_is_refused_and_named(change: str, named: str) -> None:
    with pytest.raises(RequestError) as refused:
        with_changes(LENET, [change])
    assert named in str(refused.value)


def test_a_loss_of_another_type_starts_with_its_own_defaults() -> None:
    found = with_changes(LENET, ["loss.label_smoothing=0.1", "loss.type=huber"])
    assert found.loss == W.Huber(delta=1.0)
    assert with_changes(found, ["loss.delta=2", "loss.type=softmax_cross_entropy"]) == LENET


def test_a_loss_without_a_type_is_that_of_files_older_than_other_losses() -> None:
    found = with_changes(LENET, ["loss={label_smoothing=0.1}"])
    assert found == with_changes(LENET, ["loss.label_smoothing=0.1"])
    with pytest.raises(RequestError, match="can have label_smoothing, class_weights"):
        with_changes(LENET, ["loss={delta=1.0}"])
