"""Plugins: what is in order, and the words for what is not."""

import os
import threading

import pytest

import numpy_adapter
from dlb_worker import Adapter, PluginError, Strategy, hookimpl, plugins
from dlb_worker.contract import FEATURES, LaunchPlan, PlanRequest, Process
from dlb_worker.description import describe
from dlb_worker.errors import UnknownNameError
from dlb_worker.hookspecs import dlb_describe
from dlb_worker.plugins import check_hooks, guarded, load_plugins, plugins_of


def plugin(**functions):
    """An object with these functions."""
    return type("Plugin", (), {name: staticmethod(each) for name, each in functions.items()})()


@hookimpl
def dlb_strategy():
    pass


@hookimpl
def with_a_misspelt_argument(framework, requst):
    pass


@hookimpl
def of_two_majors():
    return numpy_adapter.adapter.describe().__class__(
        **dict(vars(numpy_adapter.adapter.describe()), contract=(3, 0))
    )


@pytest.mark.parametrize(
    "broken, words",
    [
        (plugin(dlb_strategy=dlb_strategy), "'dlb_strategy' is not a hook .* 'dlb_strategies'"),
        (plugin(dlb_start=lambda framework, request: None), "@dlb_worker.hookimpl"),
        (
            plugin(dlb_start=with_a_misspelt_argument),
            "takes requst, .* it passes framework, request",
        ),
        (plugin(), "answers no hook"),
        (plugin(dlb_describe=hookimpl(lambda: {})), "a dict, not an AdapterDescription"),
        (plugin(dlb_describe=of_two_majors), "contract 3.0 and this dlb has 2.1"),
        (plugin(dlb_strategies=hookimpl(lambda: None)), "a NoneType, not a list or tuple"),
        (plugin(dlb_workloads=hookimpl(lambda: [])), "a list, not a mapping"),
    ],
)
def test_a_broken_plugin_is_told_what_is_wrong(broken, words):
    with pytest.raises(PluginError, match=words) as caught:
        plugins_of(broken, "broken")
    assert "\n" not in str(caught.value)


def test_an_adapter_answers_every_hook_of_its_kind():
    hooks = check_hooks(numpy_adapter.adapter)
    assert {"dlb_describe", "dlb_start", "dlb_build_model", "dlb_load_data"} <= set(hooks)


class Point:
    """An entry point."""

    group = "dlb"

    def __init__(self, name, load):
        self.name, self.load = name, load


class Installed:
    """A distribution."""

    metadata = {"Name": "dlb-several", "Version": "1.0"}

    def __init__(self, points):
        self.entry_points = points


def raising():
    print("printed by a plugin")
    raise SystemExit("no\nway")


def test_a_broken_plugin_leaves_itself_out_alone(monkeypatch, capsys):
    points = [
        Point("b", raising),
        Point("numpy", lambda: numpy_adapter.adapter),
        Point("twice", lambda: numpy_adapter.NumpyAdapter()),
    ]
    monkeypatch.setattr(plugins.importlib_metadata, "distributions", lambda: [Installed(points)])
    load_plugins.cache_clear()
    try:
        found = load_plugins()
        assert [each.name for each in found.loaded] == ["numpy"]
        assert [each.name for each in found.broken] == ["b", "twice"]
        assert "SystemExit: no way" in str(found.broken[0])
        assert "has an adapter 'numpy' too" in found.broken[1].reason
        assert capsys.readouterr().out == ""
        assert describe(found)["adapters"][0]["framework_version"]
        with pytest.raises(UnknownNameError, match=r"did you mean 'numpy'.*plugin 'b'"):
            found.adapter("numpi")
        load_plugins.cache_clear()
        monkeypatch.setenv("DLB_STRICT_PLUGINS", "1")
        with pytest.raises(PluginError, match="DLB_STRICT_PLUGINS"):
            load_plugins()
    finally:
        load_plugins.cache_clear()


class Pairs(Strategy):
    name = "pairs"
    title = "Pairs"
    frameworks = ("numpy",)
    synchronous = True

    def plan(self, request):
        return LaunchPlan(tuple(Process("worker", rank) for rank in range(request.workers)))

    def join(self, rank, workers):
        return (rank, workers)


def test_a_strategy_answers_for_its_frameworks_and_its_name():
    hook = plugins_of(Pairs(), "pairs").hook
    request = PlanRequest("pairs", 2, "localhost", (1,))
    assert len(hook.dlb_plan(framework="numpy", request=request).processes) == 2
    assert hook.dlb_plan(framework="torch", request=request) is None
    assert hook.dlb_join(framework="numpy", strategy="pairs", rank=1, workers=2) == (1, 2)
    assert hook.dlb_join(framework="numpy", strategy="ring", rank=1, workers=2) is None
    assert hook.dlb_strategies()[0][0].parallelism == "data"


def test_the_specification_says_what_a_feature_means():
    assert all(FEATURES.values()) and dlb_describe.__doc__ and Adapter.features == ()


def test_what_plugins_print_in_several_threads_stays_aside(capfd):
    """The first that enters is the first that leaves: standard output is put back by the last."""
    entered, left = threading.Event(), threading.Event()

    def first():
        with guarded("waiting for the first"):
            entered.set()
            assert left.wait(10)

    thread = threading.Thread(target=first)
    print("before")
    thread.start()
    assert entered.wait(10)
    with guarded("waiting for the second"):
        left.set()
        thread.join(10)
        print("a plugin's")
        os.system("echo a program\\'s")
    print("after")
    os.system("echo and behind")
    said = capfd.readouterr()
    assert said.out.split() == ["before", "after", "and", "behind"]
    assert "a plugin's" in said.err and "a program's" in said.err
