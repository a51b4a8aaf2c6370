"""A console that escapes control characters in text of policies, tasks and records."""

from typing import Any

from rich.console import Console
from rich.errors import MarkupError
from rich.text import Text

_DIRECTIONS = (0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""Characters that change the direction of text."""
_SURROGATES = range(0xD800, 0xE000)  # not encodable in UTF-8
_CONTROL: dict[int, int | str] = {
    **{code: 0x2400 + code for code in range(32) if code not in (9, 10)},
    127: 0x2421,
    **{code: f"\\x{code:x}" for code in range(128, 160)},
    **{code: f"\\u{code:04x}" for code in (*_DIRECTIONS, *_SURROGATES)},
}
"""Control characters to their Unicode symbols, others to escapes."""


def visible_text(text: str) -> str:
    """The text with control characters, such as terminal colours, as visible symbols."""
    return text.translate(_CONTROL)


class TextConsole(Console):
    """A console on which no text sends control sequences to the terminal."""

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, emoji=False, **options)

    def show_cursor(self, show: bool = True) -> bool:  # noqa: ARG002, FBT001 - rich's
        """Do nothing: a progress bar leaves the cursor as it is, and so does a process that is killed."""
        return False

    def render_str(self, text: str, **options: Any) -> Text:
        """Text without control characters; invalid markup is shown literally."""
        try:
            return super().render_str(visible_text(text), **options)
        except MarkupError:
            options["markup"] = False
            return super().render_str(visible_text(text), **options)
