"""A proof is kept by the hash of all that it depends on, and used again while nothing has changed."""

from __future__ import annotations

import os
from pathlib import Path

from dlb_process import Dlb

#: What a run always checks itself.
OWN = {
    "weights float32",
    "forward float32",
    "audit, batches",
    "audit, clock",
    "audit, steps",
    "audit, losses",
    "audit, test",
    "structure",
    "exported weights",
    "export",
}


def certificate(dlb: Dlb, *words: object, **options: object) -> dict[str, object]:
    ended = dlb.run(*words, "--json", **options)  # type: ignore[arg-type]
    found: dict[str, object] = ended.document["certificate"]
    return found


def kept(dlb: Dlb, *words: object, **options: object) -> bool:
    return bool(certificate(dlb, *words, **options).get("kept"))


def test_a_second_run_uses_the_proof_of_the_first(dlb: Dlb) -> None:
    first, second = certificate(dlb), certificate(dlb)
    assert not first.get("kept") and second["kept"] == first["made"]
    names = [[check["check"] for check in each["checks"]] for each in (first, second)]  # type: ignore[attr-defined]
    assert sorted(names[0]) == sorted(names[1]) and set(names[0]) > OWN
    seconds = [
        {check["check"]: check["seconds"] for check in each["checks"]}  # type: ignore[attr-defined]
        for each in (first, second)
    ]
    again = {name for name, took in seconds[0].items() if took == seconds[1][name]}
    assert again == set(names[0]) - OWN
    assert dlb.records()["example"]["proof"] == "proven"


def test_it_says_so_and_makes_it_again_when_asked(dlb: Dlb) -> None:
    assert "used again" not in dlb.run().out
    assert "used again, since nothing that it depends on has changed" in dlb.run().out
    assert "used again" not in dlb.run("--prove-again").out


def test_what_changes_makes_another_proof(dlb: Dlb) -> None:
    assert not kept(dlb)
    assert not kept(dlb, "--seed", 1)
    assert not kept(dlb, "--set", "optimizer.momentum=0.5")
    assert not kept(dlb, "--batch-size", 4)
    assert not kept(dlb, "--variant", "layout=columns")
    assert not kept(dlb, more={"OMP_WAIT_POLICY": "passive"})
    assert kept(dlb)
    assert kept(dlb, "--steps", 25), "the proof is not about the number of steps"


def test_a_file_of_the_adapter_that_changes_makes_another_proof(
    dlb: Dlb, dlb_command: Path
) -> None:
    # Its sources are the checkout's, which tests that run beside this one use too.
    (source,) = dlb_command.parents[1].glob(
        "lib/python*/site-packages/dlb_example-*.dist-info/METADATA"
    )
    before = source.stat()
    assert not kept(dlb)
    try:
        os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
        assert not kept(dlb)
    finally:
        os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert kept(dlb)


def test_only_a_proof_is_kept(dlb: Dlb) -> None:
    words = ("--on", "faulty")
    for _ in range(2):
        found = certificate(dlb, *words, fault="wrong-gradient")
        assert not found.get("kept")


def test_a_damaged_file_is_made_again(dlb: Dlb) -> None:
    assert not kept(dlb)
    (path,) = proofs(dlb)
    path.write_bytes(path.read_bytes()[:100])
    assert not kept(dlb)
    assert kept(dlb)


def proofs(dlb: Dlb) -> list[Path]:
    return list((dlb.folder / "home" / "proofs").glob("*.json"))
