"""What follows from objects, such as steps, is worked out once for the same ones, and for the last few of them."""

from __future__ import annotations

from bucketflow.tasks.steps.caches import Remembered
from bucketflow.tasks.steps.step import Step


def steps(count: int) -> list[Step]:
    return [Step(node, (), (), (), None) for node in range(count)]


def test_it_is_made_once_for_the_same_steps() -> None:
    known, made, some = Remembered[int](), list[int](), steps(3)

    def make() -> int:
        made.append(len(made))
        return made[-1]

    assert [known.of(tuple(some), "a", make), known.of(some, "a", make)] == [0, 0]
    assert known.of(some[:2], "a", make) == 1
    assert known.of(some, "b", make) == 2
    assert known.of(steps(3), "a", make) == 3  # equal, but others
    assert known.of(some, "a", make) == 0


def test_few_are_kept() -> None:
    known, first = Remembered[str](), steps(1)
    assert known.of(first, 0, lambda: "old") == "old"
    for number in range(1, 5):
        known.of(first, number, lambda: "other")
    assert known.of(first, 0, lambda: "new") == "new"
    assert known.of(first, 4, lambda: "never") == "other"
