"""Parsing of v3 parameters."""

from typing import Any

import pytest

from rest_v3.requests.params import NOT_SENT, RouteParameter, boolean, choice, choices, date, iids, integer, integers, names, text
from rest_v3.requests.path_segments import read_id
from rest_v3.requests.values import MAX_INT, InvalidValueError


class TestText:
    @pytest.mark.parametrize(("raw", "value"), [("a", "a"), (" a ", " a "), ("é", "é"), (5, "5"), (2.5, "2.5"), ("0", "0")])
    def test_reads(self, raw: Any, value: str) -> None:
        assert text("title").variable_value({"title": raw}) == value

    @pytest.mark.parametrize("raw", [{"a": 1}, ["a"], True, "a\0b", "\ud800"])
    def test_rejects_invalid_input(self, raw: Any) -> None:
        with pytest.raises(InvalidValueError):
            text("title").variable_value({"title": raw})

    @pytest.mark.parametrize("raw", ["", "  ", "\t\n", None])
    def test_a_blank_counts_as_not_sent(self, raw: Any) -> None:
        assert text("title", required=True).variable_value({"title": raw}) is NOT_SENT

    def test_a_blank_clears_clearable_parameters(self) -> None:
        assert text("description", blank_clears=True).variable_value({"description": " "}) == ""
        assert names("labels", null_clears=True).variable_value({"labels": None}) is None

    def test_older_names_are_read_after_the_parameters_own(self) -> None:
        messenger = text("messenger", aliases=("skype", "icq"))
        assert messenger.variable_value({"skype": "a", "icq": "b"}) == "a"
        assert messenger.variable_value({"skype": "a", "messenger": "c"}) == "c"

    @pytest.mark.parametrize("raw", ["", " ", None])
    def test_an_ignored_value_hides_no_older_name(self, raw: Any) -> None:
        messenger = text("messenger", aliases=("skype", "icq"), default="d")
        assert messenger.variable_value({"messenger": raw, "skype": "a"}) == "a"
        assert messenger.variable_value({"messenger": raw, "skype": raw, "icq": "b"}) == "b"
        assert messenger.variable_value({"messenger": raw, "skype": raw}) == "d"
        assert boolean("enabled", aliases=("older",), strict=True).variable_value({"enabled": raw, "older": False}) is False

    def test_a_blank_that_clears_is_read_before_older_names(self) -> None:
        assert text("ref", aliases=("ref_name",), blank_clears=True).variable_value({"ref": "", "ref_name": "a"}) == ""

    def test_a_default_stands_for_what_was_not_sent(self) -> None:
        context = text("name", default="default")
        assert [context.variable_value(sent) for sent in ({}, {"name": ""}, {"name": None}, {"name": "x"})] == [*["default"] * 3, "x"]


class TestInteger:
    @pytest.mark.parametrize(("raw", "value"), [("12", 12), (" 12 ", 12), (12, 12), ("-1", -1), ("007", 7), (MAX_INT, MAX_INT)])
    def test_reads(self, raw: Any, value: int) -> None:
        assert integer("line").variable_value({"line": raw}) == value

    @pytest.mark.parametrize("raw", ["1a", "1.0", "٣", "1e3", MAX_INT + 1, -MAX_INT - 2, str(2**31), "9" * 5000, 1.0, 1e20, True, [1], {}])
    def test_rejects_invalid_input(self, raw: Any) -> None:
        with pytest.raises(InvalidValueError, match="is not a number"):
            integer("line").variable_value({"line": raw})

    @pytest.mark.parametrize("raw", ["", "0", 0, " 0 "])
    def test_zero_and_a_blank_clear(self, raw: Any) -> None:
        assert integer("assignee_id", blank_clears=True).variable_value({"assignee_id": raw}) is None

    def test_null_is_ignored(self) -> None:
        assert integer("assignee_id", blank_clears=True).variable_value({"assignee_id": None}) is NOT_SENT

    def test_means_and_among(self) -> None:
        level = integer("level", meanings={10: 1, 20: 2}, allowed=(0, 1, 2))
        assert [level.variable_value({"level": raw}) for raw in ("0", 10, "20", 2)] == [0, 1, 2, 2]
        with pytest.raises(InvalidValueError, match="is not included in the list"):
            level.variable_value({"level": 3})


class TestPathId:
    @pytest.mark.parametrize(("raw", "number"), [("1", 1), ("0", 0), ("007", 7), (str(MAX_INT), MAX_INT)])
    def test_reads_digits(self, raw: str, number: int) -> None:
        assert read_id(raw) == number

    @pytest.mark.parametrize("raw", ["", "-1", "+1", " 1", "1a", "1abc", "1.0", "1_0", "٣", "²", str(MAX_INT + 1), "9" * 4000])
    def test_other_ids_match_nothing(self, raw: str) -> None:
        assert read_id(raw) == 0


class TestLists:
    @pytest.mark.parametrize(
        ("raw", "value"),
        [("a, b", ["a", "b"]), (["a", "b,c"], ["a", "b", "c"]), ("a,,a", ["a"]), (["a", None, ""], ["a"]), ([1], ["1"])],
    )
    def test_names(self, raw: Any, value: list[str]) -> None:
        assert names("labels").variable_value({"labels": raw}) == value

    @pytest.mark.parametrize("raw", ["", [], [""], "  "])
    def test_an_empty_list_clears_clearable_parameters(self, raw: Any) -> None:
        assert names("labels", blank_clears=True).variable_value({"labels": raw}) == []
        assert names("labels").variable_value({"labels": raw}) is NOT_SENT

    @pytest.mark.parametrize("raw", [{"a": 1}, [["a"]], [{}], [True]])
    def test_rejects_invalid_input(self, raw: Any) -> None:
        with pytest.raises(InvalidValueError):
            names("labels").variable_value({"labels": raw})

    def test_integers(self) -> None:
        assert integers("iid").variable_value({"iid": ["1", "2", "1"]}) == [1, 2]
        assert integers("iid").variable_value({"iid": 3}) == [3]
        assert integers("levels", meanings={10: 1}, allowed=(0, 1)).variable_value({"levels": [0, 10]}) == [0, 1]
        assert integers("levels", meanings={0: "LOW", 10: "LOW"}, allowed=("LOW",)).variable_value({"levels": ["0,10"]}) == ["LOW"]
        assert integers("iid").variable_value({"iid": ["1, 2", "3,"]}) == [1, 2, 3]
        with pytest.raises(InvalidValueError):
            integers("iid").variable_value({"iid": ["1", "x"]})

    @pytest.mark.parametrize(
        ("raw", "value"),
        [("1", [1]), (" 1, 2", [1, 2]), (["1", "2", "1"], [1, 2]), ("99999999999", [0]), ("x", [0]), ("-1", [0]), ("1,2x", [1, 0])],
    )
    def test_iids(self, raw: Any, value: list[int]) -> None:
        assert iids("iid").variable_value({"iid": raw}) == value

    @pytest.mark.parametrize("raw", ["1\0", {"a": 1}, [True], "\ud800"])
    def test_rejects_iids_that_are_no_text(self, raw: Any) -> None:
        with pytest.raises(InvalidValueError):
            iids("iid").variable_value({"iid": raw})

    def test_choices(self) -> None:
        scope = choices("scope", "pending", "running", invalid_message="Scope contains invalid value(s)")
        assert scope.variable_value({"scope": "pending"}) == ["pending"]
        assert scope.variable_value({"scope": ["running", "pending"]}) == ["running", "pending"]
        with pytest.raises(InvalidValueError):
            scope.variable_value({"scope": ["pending", "asleep"]})


class TestWords:
    @pytest.mark.parametrize("raw", ["1", "t", "T", "true", "TRUE", "True", "on", "ON", True, 1])
    def test_true(self, raw: Any) -> None:
        assert boolean("all").variable_value({"all": raw}) is True

    @pytest.mark.parametrize("raw", ["0", "false", "no", "anything", False, 0, 2])
    def test_other_values_are_false(self, raw: Any) -> None:
        assert boolean("all").variable_value({"all": raw}) is False

    @pytest.mark.parametrize(
        ("raw", "meant"), [("1", True), (1, True), (True, True), (" ON ", True), ("f", False), (0, False), (False, False), ("off", False)]
    )
    def test_a_strict_boolean_accepts_true_and_false_words(self, raw: Any, meant: bool) -> None:
        assert boolean("all", strict=True).variable_value({"all": raw}) is meant

    @pytest.mark.parametrize("raw", ["perhaps", 2, -1, 1.0, [True], {"a": 1}])
    def test_a_strict_boolean_rejects_other_words(self, raw: Any) -> None:
        with pytest.raises(InvalidValueError, match="is not included in the list"):
            boolean("all", strict=True).variable_value({"all": raw})

    def test_a_list_is_no_boolean(self) -> None:
        with pytest.raises(InvalidValueError):
            boolean("all").variable_value({"all": [True]})

    def test_a_choice(self) -> None:
        event = choice("state_event", "close", "reopen")
        assert event.variable_value({"state_event": "close"}) == "close"
        for wrong in ("Close", "merge", 1, ["close"], True):
            with pytest.raises(InvalidValueError, match="is not included in the list"):
                event.variable_value({"state_event": wrong})

    def test_a_choice_may_mean_something_else(self) -> None:
        level = choice("access_level", required=True, means={"30": "DEVELOPER", "40": "MASTER"})
        assert [level.variable_value({"access_level": raw}) for raw in ("30", 40)] == ["DEVELOPER", "MASTER"]

    def test_an_unknown_word_of_a_filter_counts_as_not_sent(self) -> None:
        assert choice("state", "opened", lenient=True).variable_value({"state": "all"}) is NOT_SENT


class TestDate:
    @pytest.mark.parametrize("raw", ["2016-02-29", " 2016-02-29 ", "2016-02-29 10:00:00", "2016-02-29T00:00:00Z"])
    def test_reads(self, raw: str) -> None:
        assert date("due_date").variable_value({"due_date": raw}) == "2016-02-29"

    @pytest.mark.parametrize("raw", ["2015-02-29", "29.02.2016", "2016-2-9", 20160229, "20160229", ["2016-02-29"]])
    def test_rejects_invalid_input(self, raw: Any) -> None:
        with pytest.raises(InvalidValueError):
            date("due_date").variable_value({"due_date": raw})


@pytest.mark.parametrize("make", [text, integer, integers, boolean, names, date, choice, choices])
def test_omitted_parameters_stay_omitted(make: Any) -> None:
    parameter: RouteParameter = make("name")
    assert parameter.variable_value({}) is NOT_SENT
    assert parameter.variable_value({"name": None}) is NOT_SENT
