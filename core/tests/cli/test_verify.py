"""``dlb verify`` and ``dlb explain``: groups, certificates, the first thing that differs, the API."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from dlb_process import PATIENCE, TESTS, Dlb, said

from dlb.proof.certificate import CHECK_GROUPS, read, schema

MLP = TESTS / "workloads" / "mlp.toml"


def verify(dlb: Dlb, *words: object, on: str = "example", fault: str = "") -> Any:
    return dlb("verify", MLP, "--on", on, "--threads", 1, "--json", *words, fault=fault)


def check(dlb: Dlb, fault: str, *words: object) -> Path:
    """The certificate of a faulty adapter next to a right one."""
    path = dlb.folder / "certificate.json"
    given = ("--on", "faulty", "--certificate", path, *words)
    assert verify(dlb, *given, fault=fault).status == 1
    return path


@pytest.mark.parametrize("group", CHECK_GROUPS)
def test_a_group_alone_passes_and_proves_nothing(dlb: Dlb, group: str) -> None:
    ended = verify(dlb, "--group", group)
    assert ended.status == 0, ended.err
    assert ended.document["passed"] is True and ended.document["proven"] is False
    checks = ended.document["certificate"]["checks"]
    assert checks and {result["group"] for result in checks} == {group}
    assert set(ended.document["certificate"]["left_out"]) == set(CHECK_GROUPS) - {group}


def test_all_groups_prove(dlb: Dlb) -> None:
    ended = verify(dlb, "--group", "all", "--steps", 3)
    assert ended.status == 0 and ended.document["proven"] is True
    checks = ended.document["certificate"]["checks"]
    assert {result["group"] for result in checks} == set(CHECK_GROUPS)
    (followed,) = [result for result in checks if result["check"] == "trajectory"]
    assert followed["findings"] == [{"cause": {"code": "steps_compared", "steps": 3}}]
    assert said(followed) == "3 steps"


def test_an_export_of_what_training_made_nan_says_what_to_do(dlb: Dlb) -> None:
    ended = verify(dlb, "--set", "optimizer.learning_rate=1e30", "--group", "export")
    assert ended.status == 1
    results = {each["check"]: each for each in ended.document["certificate"]["checks"]}
    assert set(results) == {"exported weights", "export"}
    result = results["export"]
    assert result["verdict"] == "not run"
    assert [one["cause"]["code"] for one in result["findings"]] == ["trained_not_finite"]
    assert "NaN or infinity" in said(result)
    assert set(ended.document["certificate"]["diverged"]) == {"example"}


def test_float32_trajectories_are_shown_and_not_judged(dlb: Dlb) -> None:
    words = ("--group", "float32", "--steps", 12, "--on", "faulty")
    ended = verify(dlb, *words)
    assert ended.status == 0, ended.err
    first, second = ended.document["certificate"]["divergences"]
    assert (first["adapter"], second["adapter"]) == ("example", "faulty")
    assert first["steps"] == second["steps"] == [1, 2, 5, 10, 12]
    # The same NumPy behind both; from weights one place beside, another trajectory.
    assert first["distances"] == second["distances"]
    assert 0 < max(first["distances"]) < 1e-4
    assert len(first["perturbed"]) > 2 and second["perturbed"] == []
    assert all(min(row) > 0 and max(row) < 1e-3 for row in first["perturbed"])
    plain = dlb("verify", MLP, "--on", "example", "--threads", 1, "--details", *words)
    assert "example, perturbed" in plain.out and "no verdict" in plain.out


def test_no_float32_trajectories_of_a_float64_run(dlb: Dlb) -> None:
    ended = verify(dlb, "--dtype", "float64", "--group", "trajectory", "--steps", 2)
    assert ended.document["certificate"]["divergences"] == []


def test_one_step_is_enough_to_ask_for(dlb: Dlb) -> None:
    ended = verify(dlb, "--group", "update", "--group", "trajectory", "--steps", 1)
    checks = ended.document["certificate"]["checks"]
    assert {result["check"]: result["verdict"] for result in checks} == {
        "update": "passed",
        "update, timed batch": "passed",
        "trajectory": "passed",
    }


def test_a_certificate_is_written_and_fits_its_schema(dlb: Dlb) -> None:
    path = dlb.folder / "certificate.json"
    ended = verify(dlb, "--group", "forward", "--certificate", path)
    document = json.loads(path.read_bytes())
    jsonschema.validate(document, json.loads(schema()))
    assert document == ended.document["certificate"]
    assert read(path).status("example") == "unproven"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--certificate", "nowhere/certificate.json"), "there is no folder nowhere"),
        (("--steps", 0), "it must be 1 or more"),
        (("--group", "sideways"), "'sideways' is not one of"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_any_work(
    dlb: Dlb, words: tuple[object, ...], says: str
) -> None:
    ended = verify(dlb, *words)
    assert ended.status == 2 and says in ended.complaint


#: What a fault's explanation names: the check, where, and a word of the reason.
EXPLAINED = {
    "wrong-weights": ("weights float64", "fc1.weight", "off in 1 of 25088"),
    "wrong-forward": ("isolated layers", "layer flatten, flatten()", "value times 1.00"),
    "wrong-gradient": ("gradients float64", "layer ", "loss"),
    "wrong-update": ("trajectory", "fc1.bias.velocity", "momentum"),
    "wrong-export": ("exported weights", "fc1.weight", "exporter"),
}


@pytest.mark.parametrize("fault", EXPLAINED)
def test_the_first_difference_is_explained(dlb: Dlb, fault: str) -> None:
    path = check(dlb, fault, "--on", "example")
    ended = dlb("explain", path, "--json")
    assert ended.status == 0, ended.err
    assert ended.document["proof"] == {"faulty": "deviates", "example": "proven"}
    (told,) = ended.document["explanations"]
    name, where, reason = EXPLAINED[fault]
    assert told["check"] == name and told["text"]["where"].startswith(where)
    assert reason in told["text"]["reason"]
    plain = dlb("explain", path)
    assert f"faulty differs first in {name}: {where}" in plain.out
    assert "example: proven" in plain.out


def test_a_check_that_was_not_run_is_no_agreement(dlb: Dlb) -> None:
    path = check(dlb, "export-nothing")
    ended = dlb("explain", path)
    assert "faulty: unproven" in ended.out and "structure: not run" in ended.out


def test_a_run_that_failed_is_told(dlb: Dlb) -> None:
    path = check(dlb, "raise@build")
    told = dlb("explain", path)
    assert "faulty: unproven; its run failed: " in told.out
    assert "the kernel of the framework burst" in told.out


def test_a_record_is_explained_as_well(dlb: Dlb) -> None:
    dlb.run("--on", "faulty", fault="wrong-forward")
    (path,) = dlb.out.glob("*.json")
    assert "differs first in isolated layers" in dlb("explain", path).out


@pytest.mark.parametrize(
    "content", [None, b"", b"{}", b'{"format": 9}', b"\x80\x00", b'{"format":1}']
)
def test_what_is_no_certificate_is_refused(dlb: Dlb, content: bytes | None) -> None:
    path = dlb.folder / "bad.json"
    if content is not None:
        path.write_bytes(content)
    ended = dlb("explain", path)
    assert ended.status == 2 and str(path) in ended.complaint


def python(dlb: Dlb, code: str, fault: str = "") -> subprocess.CompletedProcess[str]:
    """Run code in the environment of the command."""
    return subprocess.run(
        [str(dlb.command.parent / "python"), "-c", f"import dlb\nWHAT = {str(MLP)!r}\n{code}"],
        env=dlb.environment(fault),
        cwd=dlb.folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


def test_from_python(dlb: Dlb) -> None:
    done = python(
        dlb,
        "found = dlb.verify(WHAT, ['example'], groups=['forward', 'update'], steps=2, threads=1)\n"
        "print(found.status('example'), found.passed('example'), [r.check for r in found.checks])\n",
    )
    assert done.stdout == (
        "unproven True ['forward float64', 'forward float64, training', 'update', "
        "'forward float64, timed batch', 'update, timed batch']\n"
    ), done.stderr
    assert dlb.left() == []


def test_a_run_from_python(dlb: Dlb) -> None:
    done = python(
        dlb,
        "outcome = dlb.run(WHAT, ['example'], steps=20, threads=1, out='made')\n"
        "(record,) = dlb.read_records('made')\n"
        "print(outcome.proven, record.proof, len(record.timing.step_seconds), callable(dlb.run))\n"
        "exported = 'made/models/' + record.exported.sha256 + '.onnx'\n"
        "import dlb_port; compared = dlb_port.compare_files(exported, exported)\n"
        "print([compared.status(one) for one in compared.judged_adapters])\n",
    )
    assert done.stdout == "True proven 20 True\n['proven']\n", done.stderr
    assert dlb.left() == []


def test_fewer_threads_where_fewer_cores_are_free(dlb: Dlb) -> None:
    done = python(
        dlb,
        "from dlb import resolver\n"
        "from dlb.execution import adapter, models\n"
        "adapter.free_cores = resolver.free_cores = lambda: 1\n"
        "start, begun = models.Stage.start, []\n"
        "def noted(stage, name, **words):\n"
        "    begun.append((name, words.get('threads', stage.request.threads)))\n"
        "    return start(stage, name, **words)\n"
        "models.Stage.start = noted\n"
        "dlb.verify(WHAT, ['example'], groups=['forward'])\n"
        "dlb.verify(WHAT, ['example'], groups=['forward'], threads=2)\n"
        "outcome = dlb.run(WHAT, ['example'], steps=20, threads=2, out='made')\n"
        "print(begun, outcome.proven, outcome.records[0].options.threads)\n",
    )
    assert done.stdout == ("[('timed', 1), ('timed', 2), ('timed', 2), ('proof', 1)] True 2\n"), (
        done.stderr
    )
    assert dlb.left() == []


def test_a_port_from_python(dlb: Dlb) -> None:
    text = (
        "from dlb_example.native import Linear, Net\n"
        "def make():\n    return Net(shape=(4,), fc=Linear(4, 3))\n"
    )
    (dlb.folder / "mine.py").write_text(text)
    code = "import dlb_port; port = dlb_port.verify_port({'example': 'mine:make', 'faulty': 'mine:make'})\n"
    done = python(dlb, code + "print(port.proven, len(port.pairs['faulty']))\n")
    assert done.stdout == "True 2\n", done.stderr
    assert dlb.left() == []


def test_as_an_assertion(dlb: Dlb) -> None:
    code = "dlb.assert_proven(WHAT, ['faulty'], groups=['layers'])\n"
    assert python(dlb, code).returncode == 0
    wrong = python(dlb, code, fault="wrong-forward")
    assert "NotProven: mlp: faulty deviates" in wrong.stderr
    assert "faulty differs first in isolated layers: layer flatten" in wrong.stderr
    assert dlb.left() == []


def test_an_interrupted_assertion_has_not_held(dlb: Dlb) -> None:
    code = (
        "import signal, threading\n"
        "main = threading.main_thread().ident\n"
        "threading.Timer(3.0, signal.pthread_kill, (main, signal.SIGINT)).start()\n"
        "dlb.assert_proven(WHAT, ['faulty'], steps=10_000)\n"
        "print('held')\n"
    )
    done = python(dlb, code, fault="slow@train")
    assert done.stderr.rstrip().endswith("KeyboardInterrupt") and "held" not in done.stdout
    assert dlb.left() == []


def test_an_assertion_about_groups_that_are_none(dlb: Dlb) -> None:
    done = python(dlb, "dlb.assert_proven(WHAT, ['example'], groups=['sideways'])\n")
    assert "SettingError: groups is sideways; it must be one of weights, forward" in done.stderr
