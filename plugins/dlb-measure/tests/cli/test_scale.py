"""``dlb scale``: several workers next to one, as a use of the sweep."""

from __future__ import annotations

import pytest
from dlb_process import TESTS, Dlb

MLP = TESTS / "workloads" / "mlp.toml"
QUICK = ("--steps", 20, "--rounds", 2, "--repeats", 0)


def test_speedup_and_efficiency_are_those_of_the_rounds(dlb: Dlb) -> None:
    ended = dlb("scale", MLP, "--on", "example", *QUICK, "--weak", "--out", dlb.out, "--json")
    assert ended.status == 0, ended.err
    one, two = ended.document["rows"]
    assert (one["workers"], one["strategy"], one["speedup"]) == (1, "", None)
    assert (two["workers"], two["strategy"]) == (2, "example_sync")
    assert two["batch_size"] == 2 * one["batch_size"]
    assert two["result"]["proof"] == one["result"]["proof"] == "proven"
    trials = ended.document["measurement"]["trials"]
    steady = [
        {each["round"] for each in trials if each["cell"] == cell and each["median"] is not None}
        for cell in (0, 1)
    ]
    assert (two["speedup"] is not None) == bool(steady[0] & steady[1])
    if two["speedup"] is not None:
        assert two["efficiency"]["ratio"] == pytest.approx(two["speedup"]["ratio"] / 2)
        assert two["speedup"]["low"] <= two["speedup"]["ratio"]
        # Steps of twice as many samples: the ratio is that of samples.
        seconds = [row["result"]["seconds"] for row in (one, two)]
        if steady[0] == steady[1]:
            assert two["speedup"]["ratio"] == pytest.approx(2 * seconds[0] / seconds[1])
    (measured,) = (dlb.out / "measurements").glob("*.json")
    assert "speed-up" not in dlb("results", "show", measured.stem, "--in", dlb.out).out


def test_a_dry_run_shows_the_cells(dlb: Dlb) -> None:
    words = (
        "--workers",
        "2,4",
        "--batch-size",
        "64,128",
        "--strategy",
        "all",
        "--dry-run",
        "--json",
    )
    told = dlb("scale", MLP, "--on", "example", *words, "--out", dlb.out).document
    assert [each["varied"]["workers"] for each in told["cells"]] == [1, 2, 4, 1, 2, 4]
    assert not dlb.out.exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--workers", "0,1"), "give whole numbers, 1 or more"),
        (("--workers", "2,2"), "give each number once"),
        (("--workers", "two"), "give whole numbers"),
        (("--workers", "3", "--batch-size", "2"), "is too small for 3 workers"),
        (("--strategy", "example_snyc"), "did you mean 'example_sync'"),
        (("--batch-size", "64,"), "give whole numbers"),
        (("--batch-size", "100000"), "from 1 to the 2000 training samples"),
        (("--rounds", 0), "measures nothing"),
        (("--threads", 0), "--threads is 0"),
    ],
)
def test_bad_requests(dlb: Dlb, words: tuple[object, ...], says: str) -> None:
    ended = dlb("scale", MLP, "--on", "example", *words, "--out", dlb.out)
    assert ended.status == 2 and says in ended.complaint
    assert not dlb.out.exists()
