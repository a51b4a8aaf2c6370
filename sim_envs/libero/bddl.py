"""BDDL problem files: what they say, and what is wrong in one, by its line."""

import dataclasses
import functools
import math
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

from configs.paths import read_text
from contracts.errors import UsageError, unknown

_ARGUMENTS = {"in": 2, "on": 2, "open": 1, "close": 1, "turnon": 1, "turnoff": 1, "up": 1}
"""Number of arguments of each of LIBERO's predicates."""
_SECTIONS = (
    *("problem", ":domain", ":language", ":regions", ":fixtures", ":objects", ":obj_of_interest"),
    *(":init", ":goal", ":requirements", ":scene_properties"),
)
_SECTION_DEPTH = 3  # expressions that are open in a section, the file itself counted
_REQUIRED = ("problem", ":language", ":fixtures", ":objects", ":init", ":goal")


def instruction_in(bddl: Path) -> str:
    """The instruction in a BDDL file, as LIBERO's parser returns it: lower case, single spaces."""
    return " ".join(_section(bddl, "language").split())


def problem_in(bddl: Path) -> str:
    """The name of the problem, in lower case."""
    found = re.search(r"\(\s*define\s*\(\s*problem\s+(\S+?)\s*\)", _recent_text(bddl))
    if found is None:
        raise UsageError(f"{bddl}, line 1: expected (define (problem NAME) …")
    return found[1]


def categories_in(bddl: Path) -> set[str]:
    """The categories of objects and fixtures."""
    sections = _section(bddl, "fixtures"), _section(bddl, "objects")
    return {category for text in sections for category in re.findall(r"\s-\s+(\S+)", text)}


def _section(bddl: Path, name: str) -> str:
    text = _recent_text(bddl)
    found = re.search(rf"\(\s*:{name}\b([^()]*)\)", text)
    if found is None:
        start = text.find(f":{name}")
        line = 1 + text.count("\n", 0, max(start, 0))
        raise UsageError(f"{bddl}, line {line}: expected (:{name} …)")
    return found[1]


def _text(bddl: Path) -> str:
    return re.sub(r";.*$", "", read_text(bddl), flags=re.MULTILINE).lower()


_recent_text = functools.lru_cache(maxsize=4)(_text)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Expression:
    """A word, or an expression in parentheses.

    Attributes:
        line: Its first line.
        word: The word, in lower case; for an expression, its first.
        parts: What is in the parentheses; None for a word.
    """

    line: int
    word: str
    parts: "Sequence[Expression] | None" = None

    @property
    def inner(self) -> "Sequence[Expression]":
        """The parts without the first word."""
        return (self.parts or ())[1:]

    def __str__(self) -> str:
        return self.word if self.parts is None else f"({' '.join(map(str, self.parts))})"


def parse(bddl: Path) -> Expression:
    """The expression of a file; a UsageError that names the line of a parenthesis too many or too few."""
    opened: list[tuple[int, list[Expression]]] = [(1, [])]
    for line, text in enumerate(_text(bddl).split("\n"), start=1):
        for token in re.findall(r"[()]|[^\s()]+", text):
            if token == "(":
                opened.append((line, []))
            elif token != ")":
                if token in _SECTIONS and not opened[-1][1] and len(opened) != _SECTION_DEPTH:
                    what = "a )" if len(opened) > _SECTION_DEPTH else "one ) less"
                    raise UsageError(f"{bddl}, line {opened[-1][0]}: expected {what} before ({token}")
                opened[-1][1].append(Expression(line=line, word=token))
            elif len(opened) == 1:
                raise UsageError(f"{bddl}, line {line}: expected the end of the file, found )")
            else:
                began, parts = opened.pop()
                word = parts[0].word if parts and parts[0].parts is None else ""
                opened[-1][1].append(Expression(line=began, word=word, parts=parts))
    if len(opened) > 1:
        raise UsageError(f"{bddl}, line {opened[-1][0]}: expected a ) for the ( in this line")
    whole = opened[0][1]
    if len(whole) != 1 or whole[0].word != "define":
        raise UsageError(f"{bddl}, line 1: expected (define (problem NAME) …) and nothing else")
    return whole[0]


def check_problem(bddl: Path, *, problems: Iterable[str], categories: Collection[str]) -> None:
    """Check a file of a user's, with the problems and the categories of objects that there are.

    Raises:
        UsageError: The file and line, what was expected, and the nearest of what is known.
    """
    root, file = parse(bddl), _File(bddl)
    sections = {each.word: each for each in root.inner}
    for each in root.inner:
        file.require(each, "section", each.word, _SECTIONS)
    for name in _REQUIRED:
        if name not in sections or not sections[name].inner:
            raise file.expected(sections.get(name, root), f"({name} …)")
    named = sections["problem"]
    file.require(named, "problem", named.inner[0].word, problems)
    things = dict[str, str]()
    for section in (":fixtures", ":objects"):
        for thing, category in file.declared(sections[section]):
            file.require(category, "category of objects", category.word, categories)
            if thing.word in things:
                raise UsageError(f"{file.at(thing)}: {thing.word} is declared twice; name each once")
            things[thing.word] = section
    places = {*things, *file.regions(sections.get(":regions"))}
    standing = set[str]()
    for fact in sections[":init"].inner:
        file.check_predicate(fact, places)
        standing.add(fact.inner[0].word)
    (goal, *more) = sections[":goal"].inner
    if more or goal.word != "and" or not goal.inner:
        raise file.expected(goal, "(:goal (And (PREDICATE …) …))")
    for fact in goal.inner:
        file.check_predicate(fact, places)
    if nowhere := [thing for thing, section in things.items() if section == ":objects"]:
        nowhere = [thing for thing in nowhere if thing not in standing]
    if nowhere:
        raise file.expected(sections[":init"], f"a place for {nowhere[0]}, such as (On {nowhere[0]} REGION)")


@dataclasses.dataclass(frozen=True)
class _File:
    """A file under examination."""

    path: Path

    def at(self, where: Expression) -> str:
        return f"{self.path}, line {where.line}"

    def expected(self, where: Expression, what: str) -> UsageError:
        return UsageError(f"{self.at(where)}: expected {what}, found {str(where)[:60]}")

    def require(self, where: Expression, kind: str, name: str, allowed: Iterable[str]) -> None:
        allowed = list(allowed)
        if name not in allowed:
            raise UsageError(f"{self.at(where)}: {unknown(kind, name, allowed)}")

    def declared(self, section: Expression) -> Iterator[tuple[Expression, Expression]]:
        """The things of a section, each with its category."""
        waiting: list[Expression] = []
        words = list(section.inner)
        while words:
            word = words.pop(0)
            if word.parts is not None:
                raise self.expected(word, "NAME - CATEGORY")
            if word.word != "-":
                waiting.append(word)
            elif not (waiting and words):
                raise self.expected(word, "NAME - CATEGORY")
            else:
                category = words.pop(0)
                yield from ((each, category) for each in waiting)
                waiting = []
        if waiting:
            raise self.expected(waiting[0], f"{waiting[0].word} - CATEGORY")

    def regions(self, section: Expression | None) -> Iterator[str]:
        """The names of regions, which begin with those of what they are on."""
        for region in section.inner if section is not None else ():
            given = {each.word: each for each in region.inner}
            for each in region.inner:
                attributes = (":target", ":ranges", ":yaw_rotation", ":rgba")
                self.require(each, "attribute of a region", each.word, attributes)
            target = given.get(":target")
            if target is None or len(target.inner) != 1:
                raise self.expected(region, "(NAME (:target FIXTURE_OR_OBJECT) …)")
            ranges = given.get(":ranges")
            for box in [each for part in (ranges.inner if ranges else ()) for each in part.parts or ()]:
                corners = [_number(each) for each in box.parts or ()]
                if len(corners) != 4 or not (corners[0] < corners[2] and corners[1] < corners[3]):
                    raise self.expected(box, "(MIN_X MIN_Y MAX_X MAX_Y)")
            yield f"{target.inner[0].word}_{region.word}"

    def check_predicate(self, fact: Expression, places: Collection[str]) -> None:
        if fact.parts is None:
            raise self.expected(fact, "(PREDICATE …)")
        self.require(fact, "predicate", fact.word, _ARGUMENTS)
        if len(fact.inner) != _ARGUMENTS[fact.word]:
            raise self.expected(fact, f"{_ARGUMENTS[fact.word]} names after {fact.word}")
        for each in fact.inner:
            self.require(each, "object or region", each.word, places)


def _number(word: Expression) -> float:
    try:
        return float(word.word)
    except ValueError:
        return math.nan  # which no comparison holds for
