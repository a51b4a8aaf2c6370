"""Bad names are answered in one line, the nearest valid one first."""

from configs.errors import UsageError, nearest_first, unknown


def test_the_nearest_name_comes_first():
    assert nearest_first("unifed", ["actions", "isolated", "shared", "unified"])[0] == "unified"


def test_an_unknown_name_is_told_in_one_line_with_value_allowed_and_remedy():
    error = unknown("suite", "libero_objct", ["libero_10", "libero_object"], remedy="See --help.")
    text = str(error)
    assert isinstance(error, UsageError)
    assert "\n" not in text
    for part in ("'libero_objct'", "did you mean 'libero_object'", "libero_10", "See --help."):
        assert part in text


def test_a_long_list_of_allowed_names_is_cut_and_counted():
    assert "(130 in all)" in str(unknown("task", "x", range(130)))
