"""Converts records and certificates of format 1 to format 2.

Format 1 described in prose what a check found. The converted document keeps that prose unchanged, as a
note, since parsing it would be guesswork. Figures, verdicts and tolerances are converted. The layer that
differs first is named only in the note.
"""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = ["convert_certificate", "convert_record"]

#: Checks that were renamed: old name to new name.
_CHECKS = {
    "layers alone": "isolated layers",
    "layers alone, training": "isolated layers, training",
}
#: Fields of a result: name in format 1 to name in format 2.
_RESULT_FIELDS = {"name": "check", "level": "group", "gate": "tolerance"}


def convert_certificate(content: bytes) -> dict[str, Any]:
    """A certificate of format 1 as one of format 2, in plain containers.

    Raises:
        msgspec.DecodeError: the document is not valid.
    """
    document = msgspec.json.decode(content, type=dict[str, Any])
    return _certificate(document)


def convert_record(content: bytes) -> dict[str, Any]:
    """A record of format 1 as one of format 2, in plain containers.

    Raises:
        msgspec.DecodeError: the document is not valid.
    """
    document = msgspec.json.decode(content, type=dict[str, Any])
    if isinstance(document.get("certificate"), dict):
        document["certificate"] = _certificate(document["certificate"])
    failure = document.get("failure", "")
    document["failure"] = _failure(failure) if failure else None
    return {**document, "format": 2, "converted_from": 1}


def _certificate(document: dict[str, Any]) -> dict[str, Any]:
    converted = {name: value for name, value in document.items() if name != "rungs"}
    results = document.get("rungs")
    if not isinstance(results, list) or not all(isinstance(result, dict) for result in results):
        raise msgspec.ValidationError("Object missing required field `rungs`")
    failures = document.get("failures", {})
    if not isinstance(failures, dict):
        raise msgspec.ValidationError("Expected `object` - at `$.failures`")
    return {
        **converted,
        "checks": [_result(result) for result in results],
        "failures": {adapter: _failure(text) for adapter, text in failures.items()},
        "format": 2,
        "converted_from": 1,
    }


def _result(result: dict[str, Any]) -> dict[str, Any]:
    converted = {
        _RESULT_FIELDS.get(name, name): value
        for name, value in result.items()
        if name not in ("detail", "against")
    }
    check = converted.get("check")
    converted["check"] = _CHECKS.get(check, check) if isinstance(check, str) else check
    converted["baseline"] = {"kind": "note", "names": [result.get("against", "")]}
    detail = result.get("detail", "")
    if detail:
        converted["findings"] = [{"cause": {"code": "note", "text": detail}}]
    return converted


def _failure(text: Any) -> dict[str, Any]:
    return {"kind": "Note", "message": text}
