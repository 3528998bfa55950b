"""Records and certificates of format 1, made documents of this format.

Format 1 said in prose what a check found. That prose is kept word for word, as a note: to take it apart
would be to guess. So figures, verdicts and tolerances are converted, and the layer that differs first is
only named in the note.
"""

from __future__ import annotations

from typing import Any

import msgspec

from dlb.proof.certificate import Certificate
from dlb.record import Record

__all__ = ["convert_certificate", "convert_record"]

#: Checks that have another name now.
_CHECKS = {
    "layers alone": "isolated layers",
    "layers alone, training": "isolated layers, training",
}
#: What results of format 1 are called.
_RESULT_FIELDS = {"name": "check", "level": "group", "gate": "tolerance"}


def convert_certificate(content: bytes) -> Certificate:
    """A certificate of format 1.

    Raises:
        msgspec.DecodeError: it does not hold together.
    """
    document = msgspec.json.decode(content, type=dict[str, Any])
    return msgspec.convert(_certificate(document), Certificate)


def convert_record(content: bytes) -> Record:
    """A record of format 1.

    Raises:
        msgspec.DecodeError: it does not hold together.
    """
    document = msgspec.json.decode(content, type=dict[str, Any])
    if isinstance(document.get("certificate"), dict):
        document["certificate"] = _certificate(document["certificate"])
    failure = document.get("failure", "")
    document["failure"] = _failure(failure) if failure else None
    return msgspec.convert({**document, "format": 2, "converted_from": 1}, Record)


def _certificate(document: dict[str, Any]) -> dict[str, Any]:
    converted = {name: value for name, value in document.items() if name != "rungs"}
    results = document.get("rungs")
    if not isinstance(results, list) or not all(isinstance(one, dict) for one in results):
        raise msgspec.ValidationError("Object missing required field `rungs`")
    failures = document.get("failures", {})
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
