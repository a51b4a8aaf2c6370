"""Colours and sizes of video frames, in RGB and pixels. Figures share the colours of modes."""

from collections.abc import Mapping
from typing import Literal

Rgb = tuple[int, int, int]
Mark = Literal["right", "partly right", "wrong", "unreadable"]

BACKGROUND: Rgb = (16, 18, 23)
CARD: Rgb = (27, 30, 38)
LINE: Rgb = (50, 55, 67)
TEXT: Rgb = (236, 239, 244)
DIMMED: Rgb = (178, 185, 198)
MUTED: Rgb = (128, 137, 154)

MODE_COLOURS: Mapping[str, Rgb] = {
    "actions": (122, 130, 146),
    "isolated": (213, 94, 0),
    "interleaved": (0, 138, 106),
    "shared": (160, 118, 0),
    "parallel": (184, 92, 152),
    "unified": (0, 128, 200),
}
"""After Okabe and Ito's colour-blind-safe palette; legible as text on the video's card and on white."""
OUTCOMES: Mapping[str, tuple[str, Rgb]] = {
    "success": ("✓", (88, 204, 144)),
    "timeout": ("◔", (240, 178, 92)),
    "failure": ("✕", (242, 148, 98)),
    "invalid_action": ("✕", (240, 132, 200)),
    "error": ("✕", (242, 104, 98)),
}
MARKS: Mapping[Mark, tuple[str, Rgb]] = {
    "right": ("✓", (88, 204, 144)),
    "partly right": ("◐", (240, 178, 92)),
    "wrong": ("✗", (242, 104, 98)),
    "unreadable": ("?", (242, 104, 98)),
}
"""Sign and colour of an outcome, and of a text's grade: some viewers cannot tell the colours."""

IDLE: Rgb = (240, 228, 66)
CONTINUED: Rgb = (112, 120, 137)
"""Control steps in which the robot is idle, or continues the previous chunk."""

CAMERA_LABELS: Mapping[str, str] = {"image": "agent view", "wrist_image": "wrist"}
"""Displayed names of common cameras; others keep their names."""

CAMERA = 512
"""Side of a camera image: twice LIBERO's 256, so that scaling is uniform."""
MARGIN = 24
GAP = 16
PADDING = 20
CORNER = 12
HEIGHT = 776

CAMERA_TOP = 96
PROGRESS_TOP = CAMERA_TOP + CAMERA + 14
PROGRESS_HEIGHT = 6
NARRATION_TOP = PROGRESS_TOP + PROGRESS_HEIGHT + 20
BOTTOM = HEIGHT - MARGIN
HEADING_HEIGHT = 24

SIDEBAR = 344
SIDEBAR_TEXT = SIDEBAR - 2 * PADDING
NUMBERS_TOP = CAMERA_TOP + 94
NUMBERS_HEIGHT = 74
LATENCIES_TOP = NUMBERS_TOP + NUMBERS_HEIGHT + 4
LATENCIES_HEIGHT = 58
LATENCIES = 25
"""Queries that the strip of latencies shows."""
MEMORY_TOP = LATENCIES_TOP + LATENCIES_HEIGHT + 2 * PADDING
MEMORY_HEIGHT = BOTTOM - PADDING - MEMORY_TOP

TIMELINE_HEIGHT = 164
TIMELINE_TOP = BOTTOM - PADDING - TIMELINE_HEIGHT
TIMELINE_PIXELS_PER_S = 60
"""A whole number of pixels per control step at 10, 12, 15, 20 and 30 Hz, for smooth scrolling."""
TIMELINE_S = SIDEBAR_TEXT / TIMELINE_PIXELS_PER_S
"""Seconds that the timeline covers."""
MEMORY_HEIGHT_ABOVE_TIMELINE = TIMELINE_TOP - PADDING - MEMORY_TOP

PLAIN_NUMBERS_TOP = PROGRESS_TOP + PROGRESS_HEIGHT + 12
PLAIN_NUMBERS_HEIGHT = 30
PLAIN_HEIGHT = PLAIN_NUMBERS_TOP + PLAIN_NUMBERS_HEIGHT + MARGIN
PLAIN_CARD_TOP = PLAIN_NUMBERS_TOP + PLAIN_NUMBERS_HEIGHT + 12
PLAIN_CARD_HEIGHT = 156
PLAIN_HEIGHT_WITH_TIMELINE = PLAIN_CARD_TOP + PLAIN_CARD_HEIGHT + MARGIN
"""Frames of a policy without texts have no sidebar; the timeline, if there is one, is below the cameras."""
HEIGHTS = (HEIGHT, PLAIN_HEIGHT, PLAIN_HEIGHT_WITH_TIMELINE)


def language_colour(mode: Rgb) -> Rgb:
    """A muted shade of a mode's colour, for language."""
    red, green, blue = ((3 * ours + 2 * ground) // 5 for ours, ground in zip(mode, BACKGROUND, strict=True))
    return red, green, blue


def sidebar_left(cameras: int) -> int:
    """Left edge of the card beside the cameras."""
    return MARGIN + cameras * (CAMERA + GAP) - GAP + MARGIN


def picture_size(cameras: int, *, texts: bool = True, timeline: bool = False) -> tuple[int, int]:
    """Width and height of a frame with that many cameras; both even, as yuv420p requires."""
    if texts:
        return sidebar_left(cameras) + SIDEBAR + MARGIN, HEIGHT
    return sidebar_left(cameras), PLAIN_HEIGHT_WITH_TIMELINE if timeline else PLAIN_HEIGHT
