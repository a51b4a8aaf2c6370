"""Reads the Markdown of a leaderboard back."""

from eval.report.leaderboard_formats import to_markdown
from eval.report.leaderboard_tables import read_leaderboard


def leaderboard(paths, **options):
    """The runs in some folders as Markdown."""
    return to_markdown(read_leaderboard(paths, **options))


def tables(markdown):
    """Suite to its tables, each a list of rows, each a mapping from heading to cell."""
    found, headings, suite = {}, None, None
    for line in markdown.splitlines():
        if line.startswith("## "):
            suite = line[3:]
        elif line.startswith("| #"):
            headings = cells_of(line)
            found.setdefault(suite, []).append([])
        elif line.startswith("| "):
            found[suite][-1].append(dict(zip(headings, cells_of(line), strict=True)))
    return found


def cells_of(line):
    return [cell.strip() for cell in line.replace("\\|", "\0").strip("|").split("|")]


def not_ranked(markdown):
    """Run to the reason it was left out."""
    _, _, listed = markdown.partition("## Not ranked")
    return dict(line[2:].split(": ", 1) for line in listed.splitlines() if line.startswith("- "))
