"""A picture of a dataset: first, middle and last image of some episodes, with their narrations."""

from pathlib import Path

from PIL import Image, ImageDraw

from oxygen.robots.images import resize_with_pad
from oxygen.training.demonstrations import Demonstrations, EpisodeSpan
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
        _draw(sheet, demonstrations, episode, top=_GAP + number * _ROW)
    sheet.save(path)


def _draw(sheet: Image.Image, demonstrations: Demonstrations, episode: EpisodeSpan, *, top: int) -> None:
    origin = episode.origin
    noise = f", noise {origin.noise:g}" if origin.noise else ""
    title = (
        f"{origin.suite} {origin.task_id}, init {origin.init_id}, seed {origin.seed}{noise}, "
        f"{episode.stop - episode.start} frames: {episode.language}"
    )
    _write(sheet, title, (_GAP, top), width=_WIDTH, lines=_TITLE_LINES, ink=_INK)
    last = episode.stop - 1
    for column, index in enumerate((episode.start, (episode.start + last) // 2, last)):
        frame = demonstrations.frame(index)
        left = _GAP + column * (_SIDE + _GAP)
        image = Image.fromarray(resize_with_pad(frame.images[demonstrations.cameras[0]], _SIDE))
        sheet.paste(image, (left, top + _TITLE_LINES * _LINE))
        below = top + _TITLE_LINES * _LINE + _SIDE + 2
        caption = f"step {frame.step}{f': {frame.narration}' if frame.narration else ''}"
        _write(sheet, caption, (left, below), width=_SIDE, lines=_CAPTION_LINES, ink=_GREY)


def _write(sheet: Image.Image, text: str, at: tuple[int, int], *, width: int, lines: int, ink: str) -> None:
    font = load_font(_TEXT)
    for number, line in enumerate(wrap(text, font, width=width, max_lines=lines)):
        ImageDraw.Draw(sheet).text((at[0], at[1] + number * _LINE), line, fill=ink, font=font)
