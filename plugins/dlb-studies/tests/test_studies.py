"""Study files, and the tables of published numbers and ours that they make."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dlb.catalogue import load_workload
from dlb.errors import RequestError, UnknownNameError
from dlb.settings import AXES
from dlb_graph.workload.changes import with_changes
from dlb_studies import study as studies
from dlb_studies.catalogue import load_study, study_paths
from dlb_studies.figures import Figure
from dlb_studies.runner import published_tables
from dlb_studies.table import Entry, entries_of_published, make_tables

HERE = Path(__file__).parent
OWN = HERE / "mlp-threads.toml"
SHIPPED = study_paths()


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_study_can_be_used(name: str) -> None:
    study, path = load_study(name)
    assert study.name == name == path.stem
    tables = published_tables(study, path)
    assert any(table.rows for table in tables)
    for table in tables:
        assert all(len(row) == len(table.columns) for row in table.rows)
    for part in study.parts:
        workload = load_workload(part.workload)
        for fields in (part.settings, part.vary, part.quick_settings, part.quick_vary):
            for field, value in fields.items():
                if field not in AXES:
                    values = value if isinstance(value, tuple) else (value,)
                    with_changes(workload, [f"{field}={each}" for each in values])
    assert study.facts or any(part.quick for part in study.parts)


def test_every_published_file_is_used() -> None:
    used = {each.file for name in SHIPPED for each in load_study(name)[0].published}
    folder = Path(studies.__file__).parent / "published"
    assert used == {path.name for path in folder.iterdir()}


def test_published_numbers_are_as_printed() -> None:
    study, path = load_study(str(OWN))
    found = {
        (each.labels["tool"], each.labels["threads"]): (each.text, each.doubt)
        for each in entries_of_published(study, path)
        if each.quantity == "training_s"
    }
    assert found == {
        ("NumPy", "1"): ("12.50", ""),
        ("NumPy", "2"): ("about 7", "read off a plot"),
        ("Fortran", "1"): ("3", ""),
    }


def test_ours_stand_beside_what_is_published() -> None:
    study, path = load_study(str(OWN))
    labels = {"tool": "NumPy", "hardware": "here", "threads": "1"}
    ours = [
        Entry(labels, "training_s", "~0.500", ours=Figure(0.5, estimated=True)),
        Entry({**labels, "tool": "torch"}, "training_s", "0.400", ours=Figure(0.4)),
    ]
    (table,) = make_tables(study, entries_of_published(study, path), ours)
    assert table.columns[1:] == [
        "abacus\n1\ntraining_s",
        "abacus\n1\ntesting_s",
        "abacus\n2\ntraining_s",
        "abacus\n2\ntesting_s",
        "here\n1\ntraining_s",
    ]
    assert table.rows == [
        ["NumPy", "12.50", "0.1", "about 7 ?", "0.1 ?", "~0.500"],
        ["Fortran", "3", "", "", "", ""],
        ["torch", "", "", "", "", "0.400"],
    ]
    assert table.doubts == ("read off a plot",)


@pytest.fixture
def changed(tmp_path: Path) -> Callable[[str, str], Path]:
    """The study with one piece of its text replaced."""

    def change(old: str, new: str) -> Path:
        text = OWN.read_text()
        assert old in text
        (tmp_path / "published").mkdir()
        csv = HERE / "published" / "mlp_threads.csv"
        (tmp_path / "published" / csv.name).write_text(csv.read_text())
        path = tmp_path / "changed.toml"
        path.write_text(text.replace(old, new, 1))
        return path

    return change


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('rows = ["tool"]', "rows = []", "rows names no label"),
        ('rows = ["tool"]', 'rows = ["tool", "threads"]', "label 'threads' is in split, rows and"),
        (
            'kind = "seconds_per_batch"',
            'kind = "seconds"',
            "line 10: not a study: quantities.seconds_per_batch.kind: unknown value 'seconds'; did you mean",
        ),
        ('reason = "dlb does not time the test"', "digits = 1", "'testing_s' has no kind"),
        (
            'file = "mlp_threads.csv"',
            'file = "none.csv"',
            "published file 'none.csv': No such file",
        ),
        ('file = "mlp_threads.csv"', 'file = "../a.csv"', "give its name alone"),
        ('training_s = "seconds"', 'training_s = "second"', "has no column 'second'; it has"),
        ("rounds = 1", "rounds = 0", "rounds is 0; it must be 1 or more"),
        ("rounds = 1", "precision = 0.0", "precision is 0.0; it must be 1e-06 or more"),
        ("rounds = 1", 'budget_seconds = 9\norder = "isolated"', "isolated takes rounds alone"),
        ("threads = [1, 2, 4]", "threads = []", "a setting that varies has no value"),
        (
            "iterations = 1000",
            "iteration = 1000",
            "unknown field 'iteration'; did you mean 'iterations'?",
        ),
        ("title = ", "title = = ", "not a study"),
    ],
)
def test_bad_studies(changed: Callable[[str, str], Path], old: str, new: str, says: str) -> None:
    path = changed(old, new)
    with pytest.raises(RequestError, match=r"changed\.toml") as raised:
        load_study(str(path))
    assert says in str(raised.value)


def test_unknown_studies() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'shi-table7'"):
        load_study("shi-table-7")
    with pytest.raises(RequestError, match=r"nowhere\.toml"):
        load_study("nowhere.toml")
