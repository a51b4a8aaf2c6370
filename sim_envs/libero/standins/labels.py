"""What is printed on the groceries: one painter per category, so that each is known at a glance."""

from PIL import Image

from sim_envs.libero.standins.paint import BLACK, STEEL, WHITE, Ink, Sheet

RED: Ink = (200, 40, 28)
ORANGE: Ink = (235, 125, 20)
YELLOW: Ink = (245, 205, 50)
GREEN: Ink = (22, 110, 48)
SKY: Ink = (70, 130, 215)
BROWN: Ink = (82, 40, 22)


def alphabet_soup() -> Image.Image:
    """Blue, a bowl's orange below, SOUP in white, letters swimming."""
    sheet = Sheet(STEEL)
    sheet.bar((0.0, 0.05, 1.0, 0.92), SKY)
    sheet.bar((0.0, 0.05, 1.0, 0.36), ORANGE)
    sheet.word("ABC", (0.5, 0.78), height=0.18, ink=WHITE, width=0.4)
    sheet.word("SOUP", (0.5, 0.54), height=0.26, ink=YELLOW, width=0.56)
    for k, letter in enumerate("AKTQSB"):
        sheet.word(letter, (0.09 + 0.165 * k, 0.2 + 0.07 * (-1) ** k), height=0.16, ink=YELLOW)
    return sheet.image


def tomato_sauce() -> Image.Image:
    """Red, a green belt with the words, tomatoes below."""
    sheet = Sheet(STEEL)
    sheet.bar((0.0, 0.05, 1.0, 0.92), RED)
    sheet.bar((0.0, 0.40, 1.0, 0.80), GREEN)
    sheet.word("TOMATO", (0.5, 0.68), height=0.18, ink=WHITE, width=0.56)
    sheet.word("SAUCE", (0.5, 0.51), height=0.16, ink=WHITE, width=0.5)
    sheet.bar((0.0, 0.05, 1.0, 0.36), YELLOW)
    for k in range(3):
        sheet.disc((0.03 + 0.33 * k, 0.06, 0.31 + 0.33 * k, 0.34), RED)
        sheet.bar((0.14 + 0.33 * k, 0.29, 0.2 + 0.33 * k, 0.36), GREEN)
    return sheet.image


def milk() -> Image.Image:
    """White below, red above and on the roof, a cow on green grass."""
    sheet = Sheet(WHITE)

    def wall(side: Sheet, _: int) -> None:
        side.bar((0.0, 0.42, 1.0, 1.0), RED)
        side.bar((0.0, 0.0, 1.0, 0.10), GREEN)
        side.word("MILK", (0.5, 0.57), height=0.2, ink=WHITE, width=0.86)
        side.bar((0.25, 0.16, 0.75, 0.30), BLACK)
        side.disc((0.36, 0.18, 0.54, 0.28), WHITE)
        side.bar((0.68, 0.24, 0.88, 0.35), BLACK)
        for u in (0.28, 0.66):
            side.bar((u, 0.08, u + 0.07, 0.18), BLACK)

    sheet.panels(2, wall)
    sheet.word("MILK", (0.25, 0.87), height=0.14, ink=WHITE, width=0.4)
    return sheet.image


def orange_juice() -> Image.Image:
    """Yellow with a sliced orange, an orange roof."""
    sheet = Sheet(YELLOW)

    def wall(side: Sheet, _: int) -> None:
        side.bar((0.0, 0.72, 1.0, 1.0), ORANGE)
        side.word("ORANGE", (0.5, 0.63), height=0.12, ink=GREEN, width=0.9)
        side.word("JUICE", (0.5, 0.50), height=0.13, ink=GREEN, width=0.8)
        side.disc((0.12, 0.05, 0.88, 0.42), ORANGE)
        side.disc((0.19, 0.085, 0.81, 0.385), (255, 225, 150))
        side.disc((0.24, 0.11, 0.76, 0.36), (250, 160, 40))

    sheet.panels(2, wall)
    return sheet.image


def ketchup() -> Image.Image:
    """A red bottle with a white cap and a white label."""
    sheet = Sheet((205, 52, 12))
    sheet.bar((0.0, 0.75, 1.0, 1.0), WHITE)
    sheet.bar((0.0, 0.745, 1.0, 0.76), STEEL)
    sheet.bar((0.26, 0.10, 0.74, 0.48), WHITE)
    sheet.disc((0.26, 0.38, 0.74, 0.56), WHITE)
    sheet.word("KETCHUP", (0.5, 0.38), height=0.12, ink=RED, width=0.42)
    sheet.disc((0.39, 0.13, 0.61, 0.29), RED)
    sheet.bar((0.47, 0.26, 0.53, 0.32), GREEN)
    return sheet.image


def salad_dressing() -> Image.Image:
    """A milky white bottle with a green cap and a leafy label."""
    sheet = Sheet((222, 224, 218))
    sheet.bar((0.0, 0.745, 1.0, 1.0), (10, 96, 52))
    sheet.disc((0.24, 0.06, 0.76, 0.46), GREEN)
    sheet.disc((0.27, 0.08, 0.73, 0.44), WHITE)
    sheet.word("SALAD", (0.5, 0.32), height=0.11, ink=GREEN, width=0.36)
    sheet.disc((0.36, 0.12, 0.54, 0.24), (110, 180, 60))
    sheet.disc((0.48, 0.13, 0.62, 0.23), ORANGE)
    return sheet.image


def bbq_sauce() -> Image.Image:
    """A brown bottle with a red cap, BBQ in yellow on red."""
    sheet = Sheet((92, 36, 12))
    sheet.bar((0.0, 0.755, 1.0, 1.0), (190, 45, 15))
    sheet.bar((0.22, 0.10, 0.78, 0.48), RED)
    sheet.bar((0.22, 0.42, 0.78, 0.48), YELLOW)
    sheet.word("BBQ", (0.5, 0.29), height=0.22, ink=YELLOW, width=0.46)
    sheet.bar((0.22, 0.10, 0.78, 0.14), YELLOW)
    return sheet.image


def butter() -> Image.Image:
    """Red with BUTTER in yellow, a sky and a pat of butter on top."""
    sheet = Sheet(RED, size=(192, 96))

    def face(side: Sheet, k: int) -> None:
        if k == 2:
            side.bar((0.0, 0.0, 1.0, 0.48), (120, 175, 230))
            side.bar((0.3, 0.1, 0.7, 0.4), YELLOW)
            side.bar((0.3, 0.3, 0.7, 0.4), (255, 240, 150))
        side.word(
            "BUTTER", (0.5, 0.72 if k == 2 else 0.5), height=0.34 if k == 2 else 0.6, ink=YELLOW, width=0.92
        )

    sheet.panels(3, face)
    return sheet.image


def cream_cheese() -> Image.Image:
    """Pale blue with a dark blue oval."""
    sheet = Sheet((176, 192, 214), size=(192, 96))

    def face(side: Sheet, k: int) -> None:
        side.disc((0.06, 0.12, 0.94, 0.88), (42, 62, 150))
        side.word("CREAM", (0.5, 0.62), height=0.26, ink=WHITE, width=0.7)
        side.word("CHEESE", (0.5, 0.36), height=0.24, ink=WHITE, width=0.74)
        if k == 0:
            side.bar((0.3, 0.0, 0.7, 0.1), RED)

    sheet.panels(3, face)
    return sheet.image


def chocolate_pudding() -> Image.Image:
    """Dark brown with cream letters, sides of light blue."""
    sheet = Sheet(BROWN, size=(192, 96))

    def face(side: Sheet, k: int) -> None:
        if k == 1:
            side.bar((0.0, 0.0, 1.0, 1.0), (150, 190, 225))
        ink: Ink = BROWN if k == 1 else (238, 190, 120)
        side.word("CHOCOLATE", (0.5, 0.66), height=0.24, ink=ink, width=0.92)
        side.word("PUDDING", (0.5, 0.32), height=0.28, ink=ink, width=0.88)
        side.bar((0.04, 0.86, 0.4, 1.0), RED)

    sheet.panels(3, face)
    return sheet.image


def cookies() -> Image.Image:
    """A red-brown box with three chocolate chip cookies."""
    sheet = Sheet((196, 60, 46), size=(192, 96))

    def face(side: Sheet, k: int) -> None:
        side.word("COOKIES", (0.5, 0.76 if k == 2 else 0.5), height=0.3, ink=WHITE, width=0.9)
        for n in range(3 if k == 2 else 0):
            left = 0.04 + 0.32 * n
            side.disc((left, 0.12, left + 0.3, 0.56), (214, 160, 90))
            for u, v in ((0.08, 0.24), (0.18, 0.4), (0.2, 0.22)):
                side.disc((left + u, v, left + u + 0.06, v + 0.09), BROWN)

    sheet.panels(3, face)
    return sheet.image


def white_and_yellow() -> Image.Image:
    """White glaze over a yellow foot."""
    sheet = Sheet(WHITE, size=(16, 128))
    sheet.bar((0.0, 0.0, 1.0, 0.42), (228, 188, 52))
    return sheet.image


def wine() -> Image.Image:
    """Dark green glass, a cream label, a cork."""
    sheet = Sheet((10, 24, 14))
    sheet.bar((0.0, 0.94, 1.0, 1.0), (196, 150, 96))
    sheet.bar((0.0, 0.80, 1.0, 0.94), (96, 16, 24))
    sheet.bar((0.22, 0.10, 0.78, 0.36), (232, 222, 196))
    sheet.word("WINE", (0.5, 0.24), height=0.12, ink=(120, 20, 30), width=0.4)
    return sheet.image


def pages() -> Image.Image:
    """The edge of a book: white paper between black covers."""
    sheet = Sheet((18, 18, 20), size=(64, 64))
    sheet.bar((0.12, 0.02, 0.88, 0.98), (232, 228, 214))
    for k in range(5):
        sheet.bar((0.2 + 0.14 * k, 0.02, 0.22 + 0.14 * k, 0.98), (190, 186, 172))
    return sheet.image
