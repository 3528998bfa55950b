"""Documents of format 1, written by the code of that format, are read: what they said is kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dlb import record
from dlb.cli.tables import print_certificate, print_record
from dlb.errors import RecordError
from dlb.failure import Failure
from dlb.proof import certificate
from dlb.proof.explain import explain
from dlb.proof.findings.common import Note
from dlb.report.sentences import describe

FOLDER = Path(__file__).parent / "format_1"
#: Certificates of a workload, of a port, and of two files.
CERTIFICATES = ("workload", "port", "files")


def written(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_bytes())
    assert document["format"] == 1
    return document


@pytest.mark.parametrize("name", CERTIFICATES)
def test_a_certificate_is_converted(name: str, tmp_path: Path) -> None:
    document = written(name)
    converted = certificate.read(FOLDER / f"{name}.json")
    assert (converted.format, converted.converted_from) == (certificate.FORMAT, 1)
    assert len(converted.checks) == len(document["rungs"])
    for result, rung in zip(converted.checks, document["rungs"], strict=True):
        assert (result.group, result.adapter) == (rung["level"], rung["adapter"])
        assert (result.verdict, result.tolerance) == (rung["verdict"], rung["gate"])
        assert msgspec.to_builtins(result.figures) == tuple(rung["figures"])
        # Prose is kept as it was written, and is not taken apart.
        assert describe(result) == rung["detail"]
        assert (result.baseline.kind, result.baseline.names) == ("note", (rung["against"],))
        assert all(isinstance(finding.cause, Note) for finding in result.findings)
    path = tmp_path / "again.json"
    certificate.write(converted, path)
    assert certificate.read(path) == converted


def test_checks_have_the_names_of_today() -> None:
    names = {result.check for result in certificate.read(FOLDER / "workload.json").checks}
    assert {"isolated layers", "isolated layers, training"} <= names
    assert not any("alone" in name for name in names)


@pytest.mark.parametrize("name", CERTIFICATES)
def test_what_cannot_be_converted_is_said(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    print_certificate(certificate.read(FOLDER / f"{name}.json"))
    assert "Converted from format 1" in capsys.readouterr().out


def test_what_differs_first_is_known_by_its_figures() -> None:
    (explained,) = explain(certificate.read(FOLDER / "workload.json"))
    assert (explained.adapter, explained.check) == ("faulty", "isolated layers")
    assert explained.figure is not None and explained.figure.tensor == "flatten"
    assert explained.finding is None


def test_a_record_is_converted(capsys: pytest.CaptureFixture[str]) -> None:
    converted = record.read(FOLDER / "record.json")
    assert (converted.format, converted.converted_from) == (record.FORMAT, 1)
    assert converted.certificate is not None and converted.certificate.converted_from == 1
    assert converted.failure is None and converted.timing is not None
    assert converted.proof == written("record")["proof"] == "deviates"
    print_record(converted)
    assert "Converted from format 1" in capsys.readouterr().out


def test_a_failure_is_kept_as_a_note() -> None:
    said = written("failed")["failure"]
    assert record.read(FOLDER / "failed.json").failure == Failure(kind="Note", message=said)


def test_a_folder_may_hold_records_of_both_formats(tmp_path: Path) -> None:
    old = record.read(FOLDER / "record.json")
    record.write(old, tmp_path)
    (tmp_path / "old.json").write_bytes((FOLDER / "failed.json").read_bytes())
    records, errors = record.read_folder(tmp_path)
    assert len(records) == 2 and errors == []


#: What is changed in a certificate, and what is said of it.
BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "no results": ({"rungs": None}, "`rungs`"),
    "results that are none": ({"rungs": [1]}, "`rungs`"),
    "a verdict that there is not": (
        {"rungs": [{**written("files")["rungs"][0], "verdict": "maybe"}]},
        "verdict",
    ),
    "a field that there is not": ({"colour": "red"}, "`colour`"),
}


@pytest.mark.parametrize(("changes", "says"), BROKEN.values(), ids=list(BROKEN))
def test_what_does_not_hold_together_is_refused(
    changes: dict[str, Any], says: str, tmp_path: Path
) -> None:
    path = tmp_path / "broken.json"
    path.write_text(json.dumps({**written("files"), **changes}))
    with pytest.raises(RecordError) as raised:
        certificate.read(path)
    assert raised.value.path == str(path) and "not a certificate" in raised.value.message
    assert says in raised.value.message
