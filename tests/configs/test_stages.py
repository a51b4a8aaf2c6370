"""Slow stages are announced before they begin, and completed with their time."""

import re

from configs.stages import stage


def test_a_stage_is_announced_at_once_and_completed_with_its_time(capsys):
    with stage("loading weights"):
        assert capsys.readouterr().err == "loading weights ... "
    assert re.fullmatch(r"\d+\.\d s\n", capsys.readouterr().err)
