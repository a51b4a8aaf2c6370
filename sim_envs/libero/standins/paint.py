"""Small pictures drawn by code: labels with words, wood, planks, tiles, plaster."""

import functools
from collections.abc import Callable

import numpy as np
from PIL import Image, ImageDraw, ImageFont

Ink = tuple[int, int, int]
WHITE: Ink = (245, 245, 240)
BLACK: Ink = (25, 22, 20)
STEEL: Ink = (150, 152, 155)


class Sheet:
    """A canvas in fractions of its size: (0, 0) is the lower left corner, as in texture coordinates."""

    def __init__(self, ground: Ink, *, size: tuple[int, int] = (128, 128)) -> None:
        self.image = Image.new("RGB", size, ground)
        self._draw = ImageDraw.Draw(self.image)

    def _pixels(self, box: tuple[float, float, float, float]) -> tuple[float, float, float, float]:
        width, height = self.image.size
        u0, v0, u1, v1 = box
        return (u0 * width, (1 - v1) * height, u1 * width - 1, (1 - v0) * height - 1)

    def bar(self, box: tuple[float, float, float, float], ink: Ink) -> None:
        """A filled rectangle (u0, v0, u1, v1)."""
        self._draw.rectangle(self._pixels(box), fill=ink)

    def disc(self, box: tuple[float, float, float, float], ink: Ink) -> None:
        """The ellipse inscribed in a rectangle."""
        self._draw.ellipse(self._pixels(box), fill=ink)

    def word(
        self, text: str, at: tuple[float, float], *, height: float, ink: Ink, width: float = 1.0
    ) -> None:
        """Text centred at (u, v), `height` of the picture high and no wider than `width` of it."""
        across, down = self.image.size
        size = max(6, round(height * down))
        font = ImageFont.load_default(size)
        length = font.getlength(text)
        if length > width * across:
            font = ImageFont.load_default(max(6.0, size * width * across / length))
        spot = (at[0] * across, (1 - at[1]) * down)
        self._draw.text(spot, text, fill=ink, font=font, anchor="mm", stroke_width=0.6, stroke_fill=ink)

    def panels(self, count: int, draw: Callable[["Sheet", int], None]) -> None:
        """Divide the sheet into equal columns and draw each on a sheet of its own."""
        width, height = self.image.size
        step = width // count
        for k in range(count):
            column = Sheet(self.image.getpixel((k * step, 0)), size=(step, height))  # type: ignore[arg-type]
            draw(column, k)
            self.image.paste(column.image, (k * step, 0))


def grain(
    ground: Ink, *, size: int = 128, amount: float = 10.0, stretch: int = 1, seed: int = 0
) -> Image.Image:
    """A ground with soft noise, drawn out along u: plaster (`stretch` 1), wood (`stretch` 16)."""
    noise = np.random.default_rng(seed).standard_normal((size, max(1, size // stretch)))
    noise = np.repeat(noise, stretch, axis=1)[:, :size]
    smooth = sum(np.roll(noise, k, axis=1) for k in range(stretch)) / stretch
    soft = (smooth + np.roll(smooth, 1, axis=0)) / 1.4
    pixels = np.array(ground, dtype=np.float64) + amount * soft[:, :, None]
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def planks(ground: Ink, seam: Ink, *, rows: int = 4, seed: int = 0) -> Image.Image:
    """A floor of boards: rows of grained wood, each with its own tint, seams between them."""
    image = grain(ground, size=256, amount=8.0, stretch=32, seed=seed)
    pixels = np.asarray(image).astype(np.float64)
    rng = np.random.default_rng(seed + 1)
    step = 256 // rows
    for row in range(rows):
        pixels[row * step : (row + 1) * step] += rng.uniform(-10, 10)
        cut = int(rng.integers(32, 224))
        pixels[row * step : (row + 1) * step, cut : cut + 2] = seam
        pixels[row * step : row * step + 2] = seam
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def tiles(ground: Ink, seam: Ink, *, count: int = 2, seed: int = 0) -> Image.Image:
    """A floor of square tiles."""
    pixels = np.asarray(grain(ground, size=256, amount=5.0, seed=seed)).copy()
    step = 256 // count
    for k in range(count):
        pixels[k * step : k * step + 3] = seam
        pixels[:, k * step : k * step + 3] = seam
    return Image.fromarray(pixels)


plaster = functools.partial(grain, size=64, amount=4.0)


def weave(light: Ink, dark: Ink, *, strands: int = 8) -> Image.Image:
    """Wicker: strands over and under each other."""
    size = 128
    step = size // strands
    sheet = Image.new("RGB", (size, size), dark)
    draw = ImageDraw.Draw(sheet)
    for row in range(strands):
        for column in range(strands):
            x, y = column * step, row * step
            gap = (1, 3) if (row + column) % 2 else (3, 1)
            draw.rectangle((x + gap[0], y + gap[1], x + step - 1 - gap[0], y + step - 1 - gap[1]), fill=light)
    return sheet
