"""The classifier: scikit-learn's own checks, counts and posteriors by hand, and structures that do not fit."""

from __future__ import annotations

import pickle
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

import bucketflow
from bucketflow import Model, ModelError

# scikit-learn takes seconds to import, which every process that collects these tests would spend
pytestmark = pytest.mark.skipif(find_spec("sklearn") is None, reason="scikit-learn is not installed")


def test_the_checks_of_scikit_learn_pass() -> None:
    from sklearn.utils.estimator_checks import check_estimator

    results = check_estimator(bucketflow.BayesClassifier(), on_skip=None)
    assert sum(result["status"] == "passed" for result in results) > 45


X = [["a", "u"], ["a", "v"], ["b", "u"], ["b", "v"], ["a", None]]
Y = ["no", "no", "yes", "no", "yes"]


def test_tables_are_counts_with_a_prior_and_predictions_are_posteriors() -> None:
    found = bucketflow.BayesClassifier(prior=0.5, iterations=0).fit(X, Y)
    own = np.array([3.5, 2.5]) / 6
    first = np.array([[2.5, 1.5], [1.5, 1.5]])  # by class: a, b
    second = np.array([[1.5, 2.5], [1.5, 0.5]])  # by class: u, v; the case without is not counted
    first, second = (t / t.sum(axis=1, keepdims=True) for t in (first, second))
    for row, weights in (
        (["a", "v"], own * first[:, 0] * second[:, 1]),
        (["b", np.nan], own * first[:, 1]),
        (["new", "u"], own * second[:, 0]),
    ):
        cells = np.array([row], dtype=object)
        np.testing.assert_allclose(found.predict_proba(cells), [weights / weights.sum()])
        assert found.predict(cells) == [found.classes_[weights.argmax()]]
    again = pickle.loads(pickle.dumps(found))
    np.testing.assert_array_equal(again.predict_proba(X), found.predict_proba(X))


def test_missing_cells_are_learnt_by_expectation_maximization() -> None:
    """Of a column with missing cells, the tables are the fixed point of counting by posteriors."""
    edges = [("x1", "x0"), ("class", "x1")]
    found = bucketflow.BayesClassifier(edges, prior=0.5, iterations=1000).fit(X, Y)
    classes, u = np.array([0, 0, 1, 0, 1]), np.array([1.0, 0.0, 1.0, 0.0, np.nan])
    a = np.array([1.0, 1.0, 0.0, 0.0, 1.0])
    share = 0.5
    for _ in range(1000):
        u[4] = share
        p_u = [(u[classes == k].sum() + 0.5) / ((classes == k).sum() + 1) for k in range(2)]
        p_a = [((w * a).sum() + 0.5) / (w.sum() + 1) for w in (u, 1 - u)]
        share = p_u[1] * p_a[0] / (p_u[1] * p_a[0] + (1 - p_u[1]) * p_a[1])
    model = found.model_
    table = next(f for f in model.functions if f.child == model.index["x1"])
    assert table.scope[0] == model.index["class"]
    assert table.values[:, model.state_index(model.index["x1"], "u")].tolist() == pytest.approx(p_u, abs=1e-3)


def test_a_structure_is_kept_and_a_network_may_give_it() -> None:
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(5)
    rain = rng.random(400) < 0.3
    wet = np.where(rain, rng.random(400) < 0.9, rng.random(400) < 0.2)
    frame = pandas.DataFrame({"wet": np.where(wet, "yes", "no"), "noise": rng.normal(size=400)})
    edges = [("wet", "rain"), ("wet", "noise")]
    found = bucketflow.BayesClassifier(edges, target="rain").fit(frame, rain)
    assert {(found.model_.names[f.scope[0]], found.model_.names[f.scope[-1]]) for f in found.model_.functions} == {
        ("wet", "wet"),
        *edges,
    }
    expected = (np.sum(rain & wet) + 1) / (np.sum(wet) + 2)
    assert found.predict_proba(frame[frame.wet == "yes"])[0, 1] == pytest.approx(expected)
    assert found.model_.dims[found.model_.index["noise"]] == 5
    structure = Model.build(
        "bayes",
        {"wet": 2, "noise": 2, "rain": 2},
        [(("wet",), [0.5, 0.5]), (("wet", "noise"), np.full((2, 2), 0.5)), (("wet", "rain"), np.full((2, 2), 0.5))],
    )
    same = bucketflow.BayesClassifier(model=structure, target="rain").fit(frame, rain)
    np.testing.assert_array_equal(same.predict_proba(frame), found.predict_proba(frame))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"edges": [("class", "x9")]}, "an edge names 'x9'"),
        ({"edges": [("x0", "x1"), ("x1", "x0")]}, "x0|x1|circle|cycle"),
        ({"prior": 0}, "above 0"),
        ({"bins": 1}, "at least 2"),
        ({"target": "x0"}, "a column has the name of the target"),
        ({"edges": [], "model": bucketflow.load("diagnosis")}, "both define the structure"),
    ],
)
def test_structures_that_do_not_fit_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        bucketflow.BayesClassifier(**settings).fit(X, Y)


def test_without_scikit_learn_one_sentence_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bucketflow.pipeline.bridges.sklearn_bridge.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"classifiers need scikit-learn: .*sklearn"):
        bucketflow.BayesClassifier().fit(X, Y)
