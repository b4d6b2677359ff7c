"""The colours of tuned and original words, which fade to grey as their probability falls.

All of them are about equally light: as far from white as from black, so that they can be read on either.
"""

RGB = tuple[int, int, int]

BLUE: RGB = (36, 108, 255)
RED: RGB = (226, 46, 46)
GREY: RGB = (118, 118, 118)


def faded(colour: RGB, p: float) -> str:
    """The colour as #rrggbb: itself at p = 1, grey at p = 0."""
    share = min(max(p, 0.0), 1.0)
    mixed = (_light(grey) * (1 - share) + _light(full) * share for grey, full in zip(GREY, colour, strict=True))
    return "#" + "".join(f"{_channel(light):02x}" for light in mixed)


def lightness(colour: str) -> float:
    """The relative luminance of a colour #rrggbb, from 0 (black) to 1 (white)."""
    red, green, blue = (_light(int(colour[at : at + 2], 16)) for at in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _light(channel: int) -> float:
    """The amount of light that an sRGB channel stands for."""
    value = channel / 255
    return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4


def _channel(light: float) -> int:
    value = light * 12.92 if light <= 0.0031308 else 1.055 * light ** (1 / 2.4) - 0.055
    return round(value * 255)
