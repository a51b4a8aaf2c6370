"""The part of a Markdown page that a command writes, between two comments."""

import re

from configs.errors import UsageError


def replace_block(page: str, name: str, content: str) -> str:
    """The page with `content` between the comments `NAME: begin. …` and `NAME: end`.

    Raises:
        UsageError: The page does not have both comments once, in order.
    """
    begin, end = rf"<!-- {name}: begin\b[^\n]*-->", f"<!-- {name}: end -->"
    comments = re.findall(f"{begin}|{end}", page)
    if len(comments) != 2 or comments[0] == end or comments[1] != end:
        raise UsageError(f"the page needs the comments '{name}: begin' and '{name}: end' once, in order")
    return re.sub(
        f"({begin}).*({end})", lambda found: f"{found[1]}\n\n{content}\n\n{found[2]}", page, flags=re.DOTALL
    )
