"""The part of a Markdown page that a command writes, between two comments."""

import dataclasses

from configs.errors import UsageError


@dataclasses.dataclass(frozen=True)
class MarkedBlock:
    """A part of a page that is replaced as a whole, between comments with its name and its command."""

    name: str
    command: str

    @property
    def begin(self) -> str:
        """The comment before the block."""
        return f"<!-- {self.name}: begin. Written by {self.command}; edits are lost. -->"

    @property
    def end(self) -> str:
        """The comment after the block."""
        return f"<!-- {self.name}: end -->"

    def written(self, content: str) -> str:
        """The block with both comments, which are escaped in the content."""
        for line in (self.begin, self.end):
            content = content.replace(line, line.replace("<!--", "<! --"))
        return f"{self.begin}\n\n{content}\n\n{self.end}"

    def replaced(self, page: str, content: str) -> str:
        """The page with `content` as the block's new text.

        Raises:
            UsageError: The page does not have each of the two lines once, in order.
        """
        before, begin, rest = page.partition(self.begin)
        _, end, after = rest.partition(self.end)
        if not begin or not end or self.begin in rest or self.end in after:
            raise UsageError(
                f"the page needs each of the lines {self.begin!r} and {self.end!r} once, in order"
            )
        return f"{before}{self.written(content)}{after}"
