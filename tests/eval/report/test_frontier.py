"""The frontier: the largest text rate that costs nothing measurable, tested from the rarest texts on."""

from eval.report.frontier import find_frontier


def row(every, *, success="non-inferior", time="non-inferior", mode="unified", clock="profile:a", **options):
    return {
        "run": f"{mode}-{every}",
        "device": "A",
        "options": {"clock": clock, "mode": mode, "text_every": every, **options},
        "tokens_per_simulated_s": 40.0 / every,
        "success": {"verdict": success},
        "time": {"verdict": time},
    }


ACTIONS = {**row(1, mode="actions"), "success": None, "time": None}


def only(rows):
    (found,) = find_frontier([ACTIONS, *rows])
    after = found["next"] and (found["next"]["success"], found["next"]["time"])
    return found["tokens_per_s"], found["cell"] and found["cell"]["text_every"], after


def test_it_is_the_largest_rate_before_the_first_that_is_not_shown():
    rows = [row(1, time="inferior"), row(2), row(4), row(8, success="superior")]
    assert only(rows) == (20.0, 2, ("non-inferior", "inferior"))


def test_a_larger_rate_behind_one_that_fails_does_not_count():
    rows = [row(1), row(2), row(4, success="inconclusive"), row(8)]
    assert only(rows) == (5.0, 8, ("inconclusive", "non-inferior"))


def test_all_rates_may_be_shown_and_none():
    assert only([row(2), row(1)]) == (40.0, 1, None)
    assert only([row(2, success="inferior"), row(1)]) == (0.0, None, ("inferior", "non-inferior"))


def test_modes_and_devices_have_one_each():
    two = [{}, {"mode": "isolated"}, {"clock": "profile:b"}]
    rows = [row(every, **options) for options in two for every in (2, 4)]
    found = [(each["options"]["mode"], each["options"]["clock"]) for each in find_frontier(rows)]
    assert found == [("unified", "profile:a"), ("isolated", "profile:a"), ("unified", "profile:b")]


def test_a_single_rate_has_a_verdict_and_no_frontier():
    assert find_frontier([ACTIONS, row(2)]) == []


def test_a_mode_whose_schedule_is_not_chosen_has_none():
    assert find_frontier([row(2, replan_steps=5), row(2, replan_steps="asap")]) == []


def test_chosen_schedules_are_tested_in_their_order():
    rows = [row(2, replan_steps=5), row(4, replan_steps="asap"), row(1, time="inconclusive"), row(1)]
    (found,) = find_frontier(rows, chosen=True)
    assert (found["cell"]["replan_steps"], found["rates"]) == ("asap", 4)
    assert found["next"] == {"tokens_per_s": 40.0, "success": "non-inferior", "time": "inconclusive"}


def test_without_actions_to_be_held_against_there_is_none():
    assert find_frontier([{**row(2), "success": None, "time": None}]) == []
