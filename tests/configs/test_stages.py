"""Long stages are announced before they begin."""

import re

import pytest

from configs.stages import stage


def test_a_stage_is_announced_at_once_and_completed_with_its_time(capsys):
    with stage("loading weights"):
        assert capsys.readouterr().err == "loading weights ... "
    assert re.fullmatch(r"\d+\.\d s\n", capsys.readouterr().err)


def test_an_error_in_a_stage_has_a_line_of_its_own(capsys):
    with pytest.raises(ValueError, match="no"), stage("compiling"):
        raise ValueError("no")
    assert capsys.readouterr().err == "compiling ... \n"
