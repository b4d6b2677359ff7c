"""Draws the pictures of docs/concepts as SVG: boxes, arrows and bars on a white card, legible in light and dark."""

from pathlib import Path
from xml.sax.saxutils import escape

HERE = Path(__file__).resolve().parents[1] / "docs" / "concepts"
INK, FAINT, LINE = "#1f2328", "#59636e", "#8c959f"
SOFT, FIXED, ANSWER, DELTA = "#cfe3ff", "#eef1f4", "#ffe3b8", "#2f6fde"


class Picture:
    """An SVG that grows by what is drawn."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self._parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            f'role="img" font-family="system-ui, sans-serif" font-size="15"><title>{escape(title)}</title>'
            '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
            f'orient="auto-start-reverse"><path d="M 0 0 L 10 5 L 0 10 z" fill="{LINE}"/></marker></defs>'
            f'<rect width="{width}" height="{height}" rx="10" fill="#ffffff"/>'
        ]

    def box(self, x: float, y: float, width: float, height: float, text: str = "", fill: str = FIXED) -> None:
        """A box with a text in its middle."""
        self._parts.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="5" fill="{fill}" stroke="{LINE}"/>'
        )
        self.text(x + width / 2, y + height / 2 + 5, text, anchor="middle")

    def text(self, x: float, y: float, text: str, anchor: str = "start", fill: str = INK, size: int = 15) -> None:
        """A line of text."""
        self._parts.append(
            f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="{fill}" font-size="{size}">{escape(text)}</text>'
        )

    def arrow(self, x1: float, y1: float, x2: float, y2: float) -> None:
        """An arrow."""
        self._parts.append(
            f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{LINE}" stroke-width="1.5" marker-end="url(#tip)"/>'
        )

    def bar(self, x: float, y: float, width: float, height: float, fill: str) -> None:
        """A bar."""
        self._parts.append(f'<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="{fill}"/>')

    def save(self, name: str) -> None:
        """Writes it."""
        (HERE / name).write_text("\n".join([*self._parts, "</svg>"]) + "\n", encoding="utf-8")


def soft_prompt() -> None:
    """A sentence whose words have become vectors, and the answer that the frozen LM gives at its blank."""
    picture = Picture(720, 300, "A soft prompt: the words around the blanks are free vectors")
    words = [("Mary Cassatt", 130, ANSWER), ("was", 70, SOFT), ("born", 70, SOFT), ("in", 70, SOFT), ("[Y]", 70, FIXED)]
    x = 120
    for index, (word, width, fill) in enumerate(words):
        picture.box(x, 20, width, 34, word, fill if fill != SOFT else FIXED)
        picture.arrow(x + width / 2, 56, x + width / 2, 84)
        text = f"v{'₁₂₃'[index - 1]}" if fill == SOFT else ("its own vectors" if index == 0 else "blank")
        picture.box(x, 86, width, 34, text, fill)
        picture.arrow(x + width / 2, 122, x + width / 2, 148)
        x += width + 12
    picture.box(120, 150, x - 132, 48, "the frozen LM, all layers")
    picture.arrow(x - 47, 200, x - 47, 222)
    picture.text(20, 42, "template", fill=FAINT)
    picture.text(20, 108, "LM reads", fill=FAINT)
    picture.text(20, 244, "p(y | t, x)", fill=FAINT)
    for row, (answer, width) in enumerate((("Pittsburgh", 190), ("Allegheny", 120), ("Paris", 60))):
        picture.text(245, 238 + 20 * row, answer, anchor="end")
        picture.bar(255, 226 + 20 * row, width, 14, DELTA if row == 0 else SOFT)
    picture.text(490, 258, "blue: tuned by gradient descent", fill=FAINT, size=13)
    picture.save("soft-prompt.svg")


def mixture() -> None:
    """Three prompts, their weights and answers, and the weighted sum."""
    picture = Picture(720, 250, "A mixture: the prompts' answers, each weighted, are added up")
    prompts = (
        ("[X] was born in [Y] .", 0.6, (0.7, 0.2, 0.1)),
        ("[X] , a native of [Y] ,", 0.3, (0.3, 0.6, 0.1)),
        ("[Y] , where [X] grew up", 0.1, (0.1, 0.2, 0.7)),
    )
    for row, (template, weight, answers) in enumerate(prompts):
        y = 24 + 72 * row
        picture.box(20, y, 210, 40, template, SOFT)
        picture.text(245, y + 25, f"× {weight}")
        for index, probability in enumerate(answers):
            picture.bar(310, y + 2 + 13 * index, 120 * probability, 10, DELTA if index == 0 else SOFT)
        picture.arrow(440, y + 20, 490, 120)
    totals = [sum(weight * answers[index] for _t, weight, answers in prompts) for index in range(3)]
    for index, (answer, total) in enumerate(zip(("Pittsburgh", "Allegheny", "Paris"), totals, strict=True)):
        picture.text(500, 100 + 26 * index, answer)
        picture.bar(590, 88 + 26 * index, 120 * total, 14, DELTA if index == 0 else SOFT)
    picture.text(500, 64, "p(y | x, r)", fill=FAINT)
    picture.text(245, 240, "weights p(t | r): tuned, too", fill=FAINT, size=13)
    picture.save("mixture.svg")


def deep() -> None:
    """Where a deep prompt is perturbed: at its own tokens, at every layer."""
    picture = Picture(720, 270, "A deep prompt: something is added at each prompt token as it leaves each layer")
    columns = [("x", False), ("was", True), ("born", True), ("in", True), ("[Y]", False)]
    for row, layer in enumerate(("layer L", "…", "layer 2", "layer 1", "layer 0")):
        y = 20 + 44 * row
        picture.text(20, y + 23, layer, fill=FAINT)
        for column, (_word, is_prompt) in enumerate(columns):
            if layer != "…":
                text = ("v" if layer == "layer 0" else "+ Δ") if is_prompt else ""
                picture.box(110 + 94 * column, y, 82, 34, text, SOFT if is_prompt else FIXED)
            if row:
                picture.arrow(151 + 94 * column, y - 1, 151 + 94 * column, y - 9)
    for column, (word, _is_prompt) in enumerate(columns):
        picture.text(151 + 94 * column, 256, word, anchor="middle")
    picture.text(592, 40, "blue: tuned", fill=FAINT, size=13)
    picture.text(592, 60, "grey: as the LM", fill=FAINT, size=13)
    picture.text(592, 78, "computes it", fill=FAINT, size=13)
    picture.save("deep.svg")


def weights() -> None:
    """Data-dependent weights: another x, other weights."""
    picture = Picture(720, 190, "Data-dependent weights: a prompt weighs more where it finds x itself probable")
    prompts = (("the painter [X] came from [Y] .", (0.72, 0.12)), ("the team of [X] plays in [Y] .", (0.28, 0.88)))
    for column, x in enumerate(("Mary Cassatt", "Ajax")):
        picture.text(300 + 210 * column, 30, f"x = {x}", fill=FAINT)
    for row, (template, values) in enumerate(prompts):
        y = 50 + 56 * row
        picture.box(20, y, 250, 40, template, SOFT)
        for column, value in enumerate(values):
            picture.bar(300 + 210 * column, y + 10, 150 * value, 20, DELTA)
            picture.text(308 + 210 * column + 150 * value, y + 26, f"{100 * value:.0f} %")
    picture.text(20, 178, "p(t | r, x) is proportional to p(t | r) · p(x | t)^(1/T); T is learned", fill=FAINT, size=13)
    picture.save("weights.svg")


def knowledge() -> None:
    """A score in parts: what a control scores, what is gained over it, and what is wrong."""
    picture = Picture(720, 170, "A score in parts: what needs no knowledge, and the gain over it")
    parts = ((0, 170, "#d0d7de"), (170, 330, DELTA), (500, 180, FIXED))
    for x, width, fill in parts:
        picture.bar(20 + x, 60, width, 44, fill)
    picture.text(105, 88, "control: 25 %", anchor="middle")
    picture.text(355, 88, "gain: 48 points", anchor="middle", fill="#ffffff")
    picture.text(610, 88, "wrong: 27 %", anchor="middle")
    picture.text(20, 44, "P@1 of the tuned prompts: 73 %", fill=FAINT)
    picture.arrow(290, 40, 518, 40)
    picture.text(20, 132, "right without looking at x:", fill=FAINT, size=13)
    picture.text(20, 150, "frequent answers, the prior", fill=FAINT, size=13)
    picture.text(380, 132, "what the LM must have contributed,", anchor="middle", fill=FAINT, size=13)
    picture.text(380, 150, "with an interval beside it", anchor="middle", fill=FAINT, size=13)
    picture.save("knowledge.svg")


def ranks() -> None:
    """One question, ranked, and what each metric makes of it."""
    picture = Picture(720, 210, "One question: its answers in order, and what each metric makes of it")
    answers = (("Warsaw", 0.42, False), ("Kraków", 0.23, False), ("Poznań", 0.14, True), ("Berlin", 0.07, False))
    for row, (answer, probability, is_gold) in enumerate(answers):
        y = 26 + 34 * row
        picture.text(30, y + 16, f"{row + 1}.", fill=FAINT)
        picture.text(56, y + 16, answer + ("  ← y" if is_gold else ""))
        picture.bar(190, y + 2, 300 * probability, 18, DELTA if is_gold else SOFT)
    for row, (metric, value) in enumerate((("P@1", "0"), ("P@10", "1"), ("reciprocal rank", "1/3"),
                                           ("log-loss", "−ln 0.14 = 1.97"))):  # fmt: skip
        picture.text(400, 42 + 34 * row, metric, fill=FAINT)
        picture.text(530, 42 + 34 * row, value)
    picture.text(30, 190, "Scores are means over all test facts, in per cent (log-loss: in nats).", fill=FAINT, size=13)
    picture.save("ranks.svg")


if __name__ == "__main__":
    HERE.mkdir(exist_ok=True)
    for draw in (soft_prompt, mixture, deep, weights, knowledge, ranks):
        draw()
