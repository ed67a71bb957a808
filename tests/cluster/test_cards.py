"""The card with most free memory comes first, where CUDA can be told so."""

from __future__ import annotations

import os

import pytest

from bucketflow.cluster import cards as cards_module
from bucketflow.cluster.cards import VISIBLE, Card, cards, most_free_first, take_most_free

A, B, C = Card("GPU-a", "H100", 10), Card("GPU-b", "H100", 30), Card("GPU-c", "H100", 20)
OTHER = Card("GPU-d", "T4", 40)


@pytest.mark.parametrize(
    ("there", "visible", "by_bus", "wanted"),
    [
        ([A, B, C], None, False, "GPU-b,GPU-c,GPU-a"),
        ([B, A, C], None, False, None),  # the first one is best
        ([A], None, False, None),
        ([], None, False, None),
        ([A, B, C], "0,2", False, "GPU-c,GPU-a"),
        ([A, B, C], "GPU-a, GPU-c", False, "GPU-c,GPU-a"),
        ([A, B, C], "2", False, None),
        ([A, B, C], "", False, None),
        ([A, B, C], "MIG-1,MIG-2", False, None),
        ([A, OTHER], "0,1", False, None),  # which is which depends on how CUDA numbers them
        ([A, OTHER], "0,1", True, "GPU-d,GPU-a"),
        ([A, OTHER], "GPU-a,GPU-d", False, "GPU-d,GPU-a"),
    ],
)
def test_cards_stand_in_the_order_of_free_memory(
    there: list[Card], visible: str | None, by_bus: bool, wanted: str | None
) -> None:
    assert most_free_first(there, visible, by_bus) == wanted


def test_the_order_is_that_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VISIBLE, "0,1")
    monkeypatch.setattr(cards_module, "cards", lambda: [A, B])
    take_most_free()
    assert os.environ[VISIBLE] == "GPU-b,GPU-a"


def test_a_machine_without_the_library_has_no_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cards_module, "LIBRARY", "libnothing.so.0")
    assert cards() == []


def test_without_a_driver_nothing_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cards_module, "DRIVER", "libcuda-of-nobody.so.1")
    assert not cards_module._start_driver()
    monkeypatch.setattr(cards_module, "find_spec", lambda _: None)
    assert cards_module.begin_driver() is None


@pytest.mark.gpu
def test_a_driver_that_was_begun_serves_cupy() -> None:
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    if not cupy.cuda.is_available():
        pytest.skip("no NVIDIA GPU")
    thread = cards_module.begin_driver()
    assert thread is not None
    thread.join()
    assert cards_module._start_driver()
    assert int(cupy.arange(4).sum()) == 6
