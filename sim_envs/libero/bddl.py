"""BDDL problem files: what they say, and what is wrong in one, by its line."""

import dataclasses
import functools
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from configs.paths import read_text
from contracts.errors import UsageError, unknown

_THING, _REGION, _PLACE = "object or fixture", "region", "object or region"
_OPENS, _SWITCHES = "thing that can be opened", "thing that can be switched"
_ARGUMENTS = {
    "in": (_THING, _REGION),
    "on": (_THING, _PLACE),
    "open": (_OPENS,),
    "close": (_OPENS,),
    "turnon": (_SWITCHES,),
    "turnoff": (_SWITCHES,),
    "up": (_THING,),
}
"""What each of LIBERO's predicates is said of."""
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
    """A word, or an expression in parentheses."""

    line: int  # its first line
    word: str  # the word, in lower case; for an expression, its first
    parts: "Sequence[Expression] | None" = None  # what is in the parentheses; None for a word

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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Category:
    """What can be said of objects and fixtures of a category."""

    opens: bool  # whether they can be opened
    switches: bool  # whether they can be turned on
    can_be_fixed: bool  # whether they can be fixtures
    regions: frozenset[str] | None  # those of their model; None if it is not there


def check_problem(
    bddl: Path, *, workspaces: Mapping[str, tuple[str, str]], categories: Mapping[str, Category]
) -> None:
    """Check a file of a user's; a UsageError names the line, what was expected, and the nearest known.

    `workspaces` maps the problems that there are to name and category of their table or floor.
    """
    root, file = parse(bddl), _File(bddl)
    sections = {each.word: each for each in root.inner}
    for each in root.inner:
        file.require(each, "section", each.word, _SECTIONS)
    for name in _REQUIRED:
        if name not in sections or not sections[name].inner:
            raise file.expected(sections.get(name, root), f"({name} …)")
    problem = sections["problem"].inner[0].word
    file.require(sections["problem"], "problem", problem, workspaces)
    things = file.things(sections, problem, workspaces[problem], categories)
    regions = file.regions(sections.get(":regions"), things, workspaces[problem][0])
    openable = [name for name, category in things.items() if category.opens]
    names = {
        _THING: [*things],
        _REGION: [*regions],
        _PLACE: [*things, *regions],
        _OPENS: [*openable, *(region for region, target in regions.items() if target in openable)],
        _SWITCHES: [name for name, category in things.items() if category.switches],
    }
    standing = set[str]()
    for fact in sections[":init"].inner:
        file.check_predicate(fact, names)
        if fact.word in ("in", "on") and fact.inner[0].word in standing:
            raise file.expected(fact, f"one place for {fact.inner[0]}")
        standing |= {fact.inner[0].word} if fact.word in ("in", "on") else set()
    (goal, *others) = sections[":goal"].inner
    if others or goal.word != "and" or not goal.inner:
        raise file.expected(goal, "(:goal (And (PREDICATE …) …))")
    for fact in goal.inner:
        file.check_predicate(fact, names)
    if {str(fact) for fact in goal.inner} <= {str(fact) for fact in sections[":init"].inner}:
        raise file.expected(goal, "a goal that is not true at the start")
    if nowhere := [thing for thing in things if thing not in standing]:
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

    def things(
        self,
        sections: Mapping[str, Expression],
        problem: str,
        workspace: tuple[str, str],
        categories: Mapping[str, Category],
    ) -> dict[str, Category]:
        """Maps the names of objects and fixtures, but for the workspace, to their categories."""
        found, has_workspace = dict[str, Category](), False
        fixed = [name for name, category in categories.items() if category.can_be_fixed]
        for section, allowed in ((":fixtures", fixed), (":objects", categories)):
            for thing, category in self.declared(sections[section]):
                if section == ":fixtures" and (thing.word, category.word) == workspace:
                    has_workspace = True
                    continue
                self.require(category, f"category of {section[1:]}", category.word, allowed)
                if thing.word in found:
                    raise UsageError(f"{self.at(thing)}: {thing.word} is declared twice; name each once")
                found[thing.word] = categories[category.word]
        if not has_workspace:
            raise self.expected(sections[":fixtures"], f"{' - '.join(workspace)}, as {problem} has it")
        return found

    def regions(
        self, section: Expression | None, things: Mapping[str, Category], workspace: str
    ) -> dict[str, str]:
        """Maps the names of regions, which begin with those of their targets, to these."""
        found = {}
        for region in section.inner if section is not None else ():
            given = {each.word: each for each in region.inner}
            for each in region.inner:
                attributes = (":target", ":ranges", ":yaw_rotation", ":rgba")
                self.require(each, "attribute of a region", each.word, attributes)
            target = given.get(":target")
            if target is None or len(target.inner) != 1:
                raise self.expected(region, "(NAME (:target FIXTURE_OR_OBJECT) …)")
            owner = target.inner[0].word
            ranges = given.get(":ranges")
            if ranges is None and owner not in (workspace, *things):
                continue  # LIBERO's files have regions of what is not there
            self.require(target, "object or fixture", owner, (workspace, *things))
            boxes = [each for part in (ranges.inner if ranges else ()) for each in part.parts or ()]
            for box in boxes:
                corners = [_number(each) for each in box.parts or ()]
                if len(corners) != 4 or not (corners[0] < corners[2] and corners[1] < corners[3]):
                    raise self.expected(box, "(MIN_X MIN_Y MAX_X MAX_Y)")
            if owner == workspace and not boxes:
                raise self.expected(region, "(:ranges ((MIN_X MIN_Y MAX_X MAX_Y)))")
            if owner != workspace and (of_model := things[owner].regions) is not None:
                self.require(region, f"region of {owner}", region.word, of_model)
            found[f"{owner}_{region.word}"] = owner
        return found

    def check_predicate(self, fact: Expression, names: Mapping[str, Collection[str]]) -> None:
        """Check that a predicate is one, and is said of things of the right kinds, whose names are given."""
        if fact.parts is None:
            raise self.expected(fact, "(PREDICATE …)")
        self.require(fact, "predicate", fact.word, _ARGUMENTS)
        kinds = _ARGUMENTS[fact.word]
        if len(fact.inner) != len(kinds):
            many = "a name" if len(kinds) == 1 else f"{len(kinds)} names"
            raise self.expected(fact, f"{many} after {fact.word}")
        for each, kind in zip(fact.inner, kinds, strict=True):
            self.require(each, kind, each.word, names[kind])


def _number(word: Expression) -> float:
    try:
        return float(word.word)
    except ValueError:
        return math.nan  # which no comparison holds for
