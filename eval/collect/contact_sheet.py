"""A picture of a dataset: first, middle and last image of some episodes, with their narrations."""

from pathlib import Path

from PIL import Image, ImageDraw

from oxygen.robots.images import resize_with_pad
from oxygen.training import layout
from oxygen.training.demonstrations import Demonstrations
from videos.text import load_font, wrap

_EPISODES = 8
_SIDE = 224
_GAP = 8
_TEXT = 13
_LINE = 17
_TITLE_LINES, _CAPTION_LINES = 2, 3
_WIDTH = 3 * _SIDE + 2 * _GAP
_ROW = _TITLE_LINES * _LINE + _SIDE + _CAPTION_LINES * _LINE + 2 * _GAP
_PAPER, _INK, _GREY = "white", "black", "#767676"


def write_contact_sheet(demonstrations: Demonstrations, path: Path) -> None:
    """Draw up to eight episodes, evenly spread over the dataset."""
    episodes = demonstrations.episodes
    count = min(len(episodes), _EPISODES)
    chosen = [episodes[number * len(episodes) // count] for number in range(count)]
    sheet = Image.new("RGB", (_WIDTH + 2 * _GAP, len(chosen) * _ROW + _GAP), _PAPER)
    for number, episode in enumerate(chosen):
        top, last, columns = _GAP + number * _ROW, episode.stop - 1, demonstrations.columns
        suite, task_id, init_id, seed, noise = (
            columns[layout.OWN + name][episode.start]
            for name in ("suite", "task_id", "init_id", "seed", "noise")
        )
        title = (
            f"{suite} {task_id}, init {init_id}, seed {seed}{f', noise {noise:g}' if noise else ''}, "
            f"{episode.stop - episode.start} frames: {columns[layout.LANGUAGE][episode.start]}"
        )
        _write(sheet, title, (_GAP, top), width=_WIDTH, lines=_TITLE_LINES, ink=_INK)
        top += _TITLE_LINES * _LINE
        for column, index in enumerate((episode.start, (episode.start + last) // 2, last)):
            frame, left = demonstrations[index], _GAP + column * (_SIDE + _GAP)
            image = resize_with_pad(frame[layout.IMAGES + demonstrations.cameras[0]], _SIDE)
            sheet.paste(Image.fromarray(image), (left, top))
            narration = frame[layout.OWN + "narration"]
            caption = f"step {frame[layout.STEP]}{f': {narration}' if narration else ''}"
            below = (left, top + _SIDE + 2)
            _write(sheet, caption, below, width=_SIDE, lines=_CAPTION_LINES, ink=_GREY)
    sheet.save(path)


def _write(sheet: Image.Image, text: str, at: tuple[int, int], *, width: int, lines: int, ink: str) -> None:
    font = load_font(_TEXT)
    for number, line in enumerate(wrap(text, font, width=width, max_lines=lines)):
        ImageDraw.Draw(sheet).text((at[0], at[1] + number * _LINE), line, fill=ink, font=font)
