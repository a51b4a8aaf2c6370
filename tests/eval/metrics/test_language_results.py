"""Language in results and leaderboard: where something was graded, with episodes as clusters."""

import json

import numpy as np
import pytest

from eval.metrics.language import (
    currency_differences,
    difference,
    summarize_language,
)
from eval.metrics.statistics import cluster_bootstrap_95
from eval.metrics.success import summarize
from eval.records.schema import Share, TextScores
from tests.eval.factory import RunBuilder, episode, key, query


def scored(current_s: float | None = None, **shares: Share) -> TextScores:
    """The scores of one episode's texts; `shares` are those of the headline measure."""
    measures = {when: {"all": shares[when]} if shares else {} for when in ("at_request", "on_delivery")}
    return TextScores(texts=4, not_graded=0, oracle=0, staleness_s=2.0, current_s=current_s, **measures)


@pytest.mark.parametrize(("clusters", "least"), [(40, 0.89), (10, 0.84)])
def test_intervals_have_nominal_coverage(clusters, least):
    rng, rate, covered = np.random.default_rng(1), 0.7, 0
    of = np.full(clusters, 20.0)
    for _ in range(100):
        hits = rng.binomial(20, rng.beta(7, 3, size=clusters)).astype(float)
        found = cluster_bootstrap_95(lambda h, o, axis=-1: h.sum(axis) / o.sum(axis), hits, of)
        covered += found.low <= rate <= found.high
    assert least <= covered / 100 <= 0.99


def test_loss_from_request_to_delivery_is_paired_by_episode():
    before = [Share(hits=hits, of=10) for hits in (2, 5, 9)]
    after = [Share(hits=hits - 1, of=10) for hits in (2, 5, 9)]
    lost = difference(before, after)
    assert lost["pc"] == pytest.approx(10)
    assert lost["ci95"] is None
    assert difference([Share()], [Share()]) is None


def test_results_hold_language_by_suite_task_and_overall_and_stay_json(tmp_path):
    run = RunBuilder.at(tmp_path / "run")
    for init_id, hits in enumerate((3, 1)):
        shares = {"at_request": Share(hits=hits, of=4), "on_delivery": Share(hits=1, of=4)}
        run.add(episode(key(init_id), texts={"narration": scored(**shares)}), query(0))
    results = summarize(run.path)
    for row in (results["overall"], results["per_suite"]["libero_object"], results["per_task"][0]):
        assert row["texts"]["narration"]["at_request"]["all"]["pc"] == 50
        assert row["texts"]["narration"]["on_delivery"]["all"]["pc"] == 25
        assert row["texts"]["narration"]["lost"]["pc"] == 25
    assert results["per_task"][0]["language"] == "do task 0"
    assert json.loads(json.dumps(results, allow_nan=False)) == summarize(run.path)


def currency(current_s: float | None, simulated_s: float = 10.0):
    return episode(key(0), simulated_s=simulated_s, texts={"memory": scored(current_s)})


def test_currency_counts_the_time_of_episodes_without_texts():
    silent = episode(key(1), simulated_s=20.0)
    row = summarize_language([currency(8.0), currency(4.0), silent])["memory"]["current"]
    assert (row["pc"], row["n"]) == (pytest.approx(30.0), 3)
    assert row["ci95"][0] < 30 < row["ci95"][1]
    assert summarize_language([currency(8.0), currency(None)])["memory"]["current"] is None


def test_currency_is_compared_by_episode_where_both_runs_have_texts():
    pairs = [(currency(8.0), currency(5.0)), (currency(4.0), currency(3.0))]
    found = currency_differences(pairs)["memory"]
    assert (found.a, found.b, found.difference, found.n_pairs) == pytest.approx((60, 40, -20, 2))
    assert currency_differences([(a, episode(key(0), simulated_s=9.0)) for a, _ in pairs]) == {}
