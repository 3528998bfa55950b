"""Parts that processes hold are made whole again, each at its place."""

import numpy as np

from dlb_worker.placement import ADDEND, HELD, Placement, assemble, with_marks

WHOLE = np.arange(15.0).reshape(5, 3)


def held(*parts, mark=HELD):
    """What each process writes of the parameter ``w``, whose part it holds."""
    processes = []
    for first, last, array in parts:
        placed = Placement(WHOLE.shape, (slice(first, last), slice(0, 3)))
        marks = {"w": placed.filled(np.full(array.shape, mark, "int8"))}
        processes.append(dict(with_marks({"w": placed.filled(array), "b": np.ones(2)}, marks)))
    return processes


def test_parts_on_an_axis_are_put_together():
    processes = held((0, 2, WHOLE[:2]), (2, 4, WHOLE[2:4]), (4, 5, WHOLE[4:]))
    marks = assemble(processes)
    for each in processes:
        assert sorted(each) == ["b", "w"]
        np.testing.assert_array_equal(each["w"], WHOLE)
    assert [own["placed/w"].any(axis=1).sum() for own in marks] == [2, 2, 1]


def test_replicas_of_a_part_keep_their_own():
    processes = held((0, 3, WHOLE[:3]), (0, 3, -WHOLE[:3]), (3, 5, WHOLE[3:]))
    assemble(processes)
    np.testing.assert_array_equal(processes[0]["w"], WHOLE)
    np.testing.assert_array_equal(processes[1]["w"][:3], -WHOLE[:3])
    np.testing.assert_array_equal(processes[2]["w"], WHOLE)


def test_addends_are_added():
    processes = held((0, 5, WHOLE), (0, 5, 2 * WHOLE), mark=ADDEND)
    assemble(processes)
    for each in processes:
        np.testing.assert_array_equal(each["w"], 3 * WHOLE)


def test_what_nobody_holds_is_nan():
    processes = held((0, 2, WHOLE[:2]), (3, 5, WHOLE[3:]))
    assemble(processes)
    assert np.isnan(processes[1]["w"]).all(axis=1).tolist() == [False, False, True, False, False]


def test_what_a_process_holds_nothing_of_is_filled_up():
    processes = held((0, 5, WHOLE), (0, 0, WHOLE[:0]))
    processes.append({"b": np.ones(2)})  # whose optimizer has no state of it
    assert [own["placed/w"].any() for own in assemble(processes)[:2]] == [True, False]
    for each in processes:
        np.testing.assert_array_equal(each["w"], WHOLE)


def test_what_is_whole_stays():
    processes = [{"w": WHOLE}, {"w": -WHOLE}]
    assert assemble(processes) == [{}, {}]
    np.testing.assert_array_equal(processes[1]["w"], -WHOLE)
