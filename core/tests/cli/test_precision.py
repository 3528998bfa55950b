"""``--variant precision=bfloat16``: labelled apart, and compared with what its own rounding makes."""

from __future__ import annotations

from dlb_process import Dlb

CHOSEN = ("--variant", "precision=bfloat16")


def test_a_variant_that_rounds_more_is_within_rounding(dlb: Dlb) -> None:
    ended = dlb.run("--on", "example", *CHOSEN, "--rounds", 1, "--json")
    assert ended.status == 0, ended.err
    (record,) = ended.document["records"]
    assert record["proof"] == "within rounding" and not ended.document["proven"]
    verdicts = {each["check"]: each["verdict"] for each in ended.document["certificate"]["checks"]}
    assert set(verdicts.values()) == {"passed"}
    assert {"forward bfloat16", "isolated layers bfloat16", "gradients bfloat16"} <= verdicts.keys()
    assert {"isolated layers float32", "gradients float32"} <= verdicts.keys()
    assert "forward float32" not in verdicts
    measurement = ended.document["measurement"]
    (cell,) = measurement["cells"]
    assert cell["proof"] == "within rounding"
    assert measurement["trials"][0]["checks"]["forward bfloat16"] == "passed"
    # NumPy has no products in bfloat16, so there is no peak to compare with.
    (peak,) = measurement["peaks"]
    assert peak["dtype"] == "bfloat16" and "bfloat16" in peak["reason"]


def test_it_is_shown_in_every_table(dlb: Dlb) -> None:
    ended = dlb.run("--on", "example", *CHOSEN)
    assert ended.status == 0, ended.err
    assert ended.out.count("within rounding") >= 2
    assert "example (precision=bfloat16)" in ended.out


def test_fewer_bits_than_the_type_has_deviate(dlb: Dlb) -> None:
    ended = dlb.run("--on", "faulty", *CHOSEN, "--json", fault="few-bits")
    assert ended.status == 1
    failed = {
        each["check"]
        for each in ended.document["certificate"]["checks"]
        if each["verdict"] == "failed"
    }
    assert {"forward bfloat16", "isolated layers bfloat16"} <= failed
    assert not any("float64" in check for check in failed)


def test_it_is_refused_in_float64(dlb: Dlb) -> None:
    ended = dlb.run("--on", "example", *CHOSEN, "--dtype", "float64")
    assert ended.status == 1 and "keeps weights in float32" in ended.out + ended.err
