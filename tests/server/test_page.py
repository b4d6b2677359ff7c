"""The page in a real browser: every screen, keyboard navigation, training, and nothing loaded from other hosts."""

import csv
import io
import re
import shutil
from collections.abc import Generator
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

import httpx
import pytest
from builders.servers import Served, served
from builders.verdicts import judged, keep_diff
from playwright.sync_api import Browser, Page, expect, sync_playwright

from askwell.data import testbed
from askwell.server.settings import Settings

CHROMIUM = next(
    (path for path in (Path("/usr/bin/chromium"), Path("/usr/bin/chromium-browser")) if path.exists()), None
)
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]
FLAGS += ["--disable-background-networking", "--disable-component-update"]
SHOTS = Path(__file__).parents[2] / "build" / "screenshots"
AXE = files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")
SIZES = {"desktop": {"width": 1280, "height": 900}, "phone": {"width": 390, "height": 844}}
LONG = 120_000
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here: apt-get install chromium"),
]


@dataclass
class Seen:
    """A page, and what went wrong in it."""

    page: Page
    address: str
    wrong: list[str] = field(default_factory=list)

    def open(self, path: str) -> Page:
        self.page.goto(self.address + path)
        return self.page

    def check(self, name: str, *, shots: bool = True) -> None:
        """Screenshots in all sizes and colours, nothing wider than the screen, and no fault that axe finds."""
        for scheme in ("light", "dark"):
            self.page.emulate_media(color_scheme=scheme)
            for size, viewport in SIZES.items():
                self.page.set_viewport_size(viewport)  # ty: ignore[invalid-argument-type]
                if shots:
                    self.page.screenshot(path=SHOTS / f"{name}-{size}-{scheme}.png", full_page=True)
                assert self.page.evaluate("document.documentElement.scrollWidth") <= viewport["width"], (name, size)
            self.page.evaluate(AXE)
            found = self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
            faults = [(fault["id"], [node["html"] for node in fault["nodes"]][:3]) for fault in found["violations"]]
            assert faults == [], (name, scheme)
        self.page.emulate_media(color_scheme="light")
        self.page.set_viewport_size(SIZES["desktop"])  # ty: ignore[invalid-argument-type]


@pytest.fixture(scope="module")
def at(made_runs, tmp_path_factory) -> Generator[Served]:
    """The testbed, and runs that were tuned on it."""
    cache = tmp_path_factory.mktemp("cache")
    shutil.copytree(made_runs, cache / "served")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ASKWELL_CACHE", str(cache))
        with served(Settings()) as running:
            yield running


@pytest.fixture(scope="module")
def browser() -> Generator[Browser]:
    SHOTS.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield started
        started.close()


@pytest.fixture
def seen(at, browser) -> Generator[Seen]:
    context = browser.new_context(viewport=SIZES["desktop"])
    context.set_default_timeout(LONG)
    page = context.new_page()
    found = Seen(page, at.address)
    page.on(
        "console", lambda message: found.wrong.append(message.text) if message.type in ("error", "warning") else None
    )
    page.on("pageerror", lambda error: found.wrong.append(str(error)))
    page.on(
        "request",
        lambda request: (
            None if request.url.startswith((at.address, "data:")) else found.wrong.append(f"a request to {request.url}")
        ),
    )
    yield found
    context.close()
    assert found.wrong == []


@pytest.fixture(autouse=True)
def _patient() -> None:
    expect.set_options(timeout=LONG)


def test_the_first_screen_answers_something(seen, at):
    page = seen.open("/")
    expect(page.get_by_role("heading", level=1)).to_have_text("Ask")
    bars = page.locator(".answered .bars li")
    expect(bars).to_have_count(5)
    first = httpx.get(f"{at.address}/api/v1/ask", params={"mixture": "testbed:capital/bert", "x": "France"}).json()
    expect(bars.first.locator(".y")).to_contain_text(first["answers"][0][0]["y"])
    expect(page.get_by_role("button", name="Tune it")).to_be_visible()
    seen.check("first")


def test_a_tuned_mixture_beside_its_hard_prompts(seen):
    page = seen.open("/")
    page.get_by_label("Relation and LM").fill("chemical element → its symbol · testbed:bert · soft")
    fact = next(fact for fact in testbed.testbed_relation("symbol").test if fact in testbed.told_facts("symbol"))
    page.get_by_label("x", exact=True).fill(fact.x)
    page.get_by_role("button", name="Ask", exact=True).click()
    expect(page.locator("#of-x")).to_contain_text(fact.x)
    expect(page.locator(".answered h3")).to_have_text([re.compile("Tuned mixture"), re.compile("Hard prompts")])
    expect(page.locator(".known")).to_contain_text(f"The right answer is {fact.y}.")
    expect(page.locator(".known")).to_contain_text("tells it, so it can be known")
    assert "x=" in page.url  # the answer has an address
    page.locator(".answered").first.locator("summary").first.click()
    prompts = page.locator(".answered").first.locator("details[open] tbody tr")
    expect(prompts).to_have_count(3)
    weights = [float(prompt.locator("th").inner_text().removesuffix("%")) for prompt in prompts.all()]
    assert sum(weights) == pytest.approx(100, abs=0.2)
    seen.check("ask")


def test_a_relation_is_searched_by_its_label_and_brings_its_own_xs(seen):
    page = seen.open("/")
    expect(page.locator("#what-x")).to_contain_text("x is a country; try")
    page.get_by_label("Relation and LM").fill("element symbol soft")
    page.get_by_label("Relation and LM").press("Tab")
    expect(page.locator("#what-x")).to_contain_text("x is a chemical element; try")
    known = testbed.testbed_relation("symbol").golds
    assert page.locator("#xs option").first.get_attribute("value") in known
    sample = page.locator(".samples a").first.inner_text()
    page.get_by_label("x", exact=True).fill(sample.lower())
    page.get_by_role("button", name="Ask", exact=True).click()
    page.get_by_role("link", name=sample).last.click()  # did you mean …?
    expect(page.locator("#of-x")).to_contain_text(sample)
    expect(page.locator(".known")).to_contain_text(f"The right answer is {known[sample][0]}.")


def test_it_says_when_it_does_not_know(seen, at):
    service = at.service
    entry = service.catalogue.find("soft")
    threshold = entry.threshold
    assert threshold is not None
    xs = list(entry.facts)
    best = {x: found[0].probability for x, found in zip(xs, service.ask("soft", xs).result(600), strict=True)}
    page = seen.open(f"/?about=soft&x={min(best, key=lambda x: best[x])}")
    expect(page.locator(".answered").first.locator(".unknown")).to_contain_text("Not sure: of answers below")
    page = seen.open(f"/?about=soft&x={max(best, key=lambda x: best[x])}")
    expect(page.locator(".unknown")).to_have_count(0)


def test_the_keyboards_way_through(seen):
    page = seen.open("/")
    expect(page.get_by_label("x", exact=True)).to_be_focused()
    page.keyboard.press("Control+a")
    page.keyboard.type("Peru")
    page.keyboard.press("Enter")
    expect(page.locator("#of-x")).to_contain_text("Peru")
    for _ in range(30):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.tagName") == "SUMMARY":
            break
    page.keyboard.press("Enter")
    expect(page.locator(".bars details[open]")).to_have_count(1)
    seen.open("/runs")
    page.keyboard.press("Tab")
    expect(page.get_by_text("Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()


def test_many_at_once_and_as_a_file(seen, tmp_path):
    page = seen.open("/?about=soft")
    page.get_by_text("Ask about many x’s at once").click()
    page.get_by_label("A column of x’s").fill("Iron\n<script>alert(1)</script>\n" + "long " * 190)
    (tmp_path / "more.csv").write_text("x,other\ngold,1\n")
    page.get_by_label("or a file").set_input_files(tmp_path / "more.csv")
    page.get_by_role("button", name="Ask them all").click()
    rows = page.locator("#table tbody tr")
    expect(rows).to_have_count(4)
    expect(rows.nth(1).locator("th")).to_have_text("<script>alert(1)</script>")
    expect(rows.nth(2)).to_contain_text("longer than the LM's context")
    expect(rows.nth(3).locator("th")).to_have_text("gold")
    expect(page.locator("#table figcaption")).to_contain_text("Of the 1 whose right answer is on record")
    seen.check("many")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download as CSV").click()
    lines = list(csv.DictReader(io.StringIO(Path(download.value.path()).read_text(encoding="utf-8"))))
    assert [line["x"] for line in lines][:2] == ["Iron", "<script>alert(1)</script>"]
    assert lines[0]["tuned"]
    assert 0 < float(lines[0]["hard_probability"]) <= 1


def test_an_error_is_a_sentence(seen):
    page = seen.open("/")
    page.get_by_label("x", exact=True).fill("word " * 190)
    page.get_by_role("button", name="Ask", exact=True).click()
    expect(page.locator("#answers [role=alert]").first).to_contain_text("longer than the LM's context")
    page.get_by_label("Relation and LM").fill("nothing of that name")
    page.get_by_role("button", name="Ask", exact=True).click()
    expect(page.locator("#answers [role=alert]")).to_contain_text("There is no mixture 'nothing of that name'")
    response = httpx.get(f"{seen.address}/?about=nowhere")
    assert response.status_code == 404
    assert "There is no mixture" in response.text


def test_a_mixtures_prompts_are_drawn_in_words_with_their_neighbours(seen):
    page = seen.open("/prompts?about=deep")
    words = page.locator("figure img")
    expect(words).to_have_count(1)
    assert words.evaluate("image => image.complete && image.naturalWidth") == 960
    expect(words).to_have_attribute("alt", re.compile("Soft prompts, tuned"))
    expect(page.locator("figcaption")).to_contain_text("not an explanation")
    expect(page.get_by_text("mean |Δ|").first).to_be_visible()
    page.get_by_text("vectors", exact=False).locator("visible=true").last.click()
    expect(page.get_by_text("next, p(w | v)").locator("visible=true")).to_have_count(1)
    seen.check("prompts")


def test_runs_are_filtered_sorted_compared_and_kept(seen, made_runs):
    page = seen.open("/runs")
    rows = page.locator("#runs tbody tr")
    expect(rows).to_have_count(3)
    page.set_viewport_size(SIZES["phone"])
    widths = (
        "(() => { const of = document.querySelector('#runs .scrolled'); return [of.scrollWidth, of.clientWidth] })()"
    )
    needed, there = page.evaluate(widths)
    assert needed <= there
    seen.check("runs")
    page.get_by_label("Filter").fill("deep")
    expect(rows).to_have_count(1)
    page.get_by_label("Filter").fill("")
    expect(rows).to_have_count(3)
    with page.expect_response(lambda response: "sort=P" in response.url):
        page.get_by_label("Sort by").select_option("P@1")
    expect(rows).to_have_count(3)
    scores = [float(score) for score in page.locator("#runs tbody td:nth-child(3)").all_inner_texts()]
    assert scores == sorted(scores, reverse=True)
    page.get_by_label("A", exact=True).select_option("soft")
    expect(page.locator("#B option")).to_have_text(["deep", "hard"])
    page.locator("#B").select_option("hard")
    page.get_by_role("button", name="Compare A with B").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Two runs compared")
    expect(page.locator("main")).to_contain_text("permutation test")
    seen.check("compare")
    page.get_by_role("link", name="See soft").click()
    expect(page.locator(".about")).to_contain_text("soft")
    expect(page.locator("main")).to_contain_text("askwell train --lm testbed:bert --facts testbed:symbol")
    seen.check("run")
    with page.expect_download() as download:
        page.get_by_role("link", name="Save as one HTML file").click()
    kept = Path(download.value.path()).read_text(encoding="utf-8")
    assert "Can I believe this?" in kept
    assert not re.search(r"""(?:src|href)=["'](?!#|data:)""", kept)  # nothing but the file itself
    assert "<script" not in kept


def test_diffs_are_listed_and_shown(seen, at):
    page = seen.open("/diffs")
    expect(page.locator(".commands")).to_contain_text("askwell diff testbed:causal testbed:causal-unlearned")
    folder = at.service.catalogue.path
    keep_diff(folder / "four bits", judged())
    (folder / "broken").mkdir()
    (folder / "broken" / "diff.json").write_text("{")
    try:
        page = seen.open("/diffs")
        expect(page.locator("tbody tr")).to_have_count(1)
        expect(page.locator("main")).to_contain_text("broken cannot be read")
        seen.check("diffs")
        page.get_by_role("link", name="four bits").click()
        expect(page.locator(".lead")).to_have_text(
            "Of 10 facts that BERT knew, BERT (4 bits) keeps 5 by hand; 3 more are only hidden, since tuned prompts "
            "still find them: 3 (1 to 3) beyond guessing; 2 are gone."
        )
        expect(page.locator("figure img")).to_have_count(2)
        expect(page.get_by_text("Hidden: found by hand before, only by tuned prompts after (3)")).to_be_visible()
        seen.check("diff")
        assert httpx.get(f"{seen.address}/diffs/nowhere").status_code == 404
    finally:
        shutil.rmtree(folder / "four bits")
        shutil.rmtree(folder / "broken")


def test_how_far_a_run_can_be_trusted_is_told_and_drawn(seen):
    page = seen.open("/trust")
    page.get_by_label("Run").select_option("soft")
    page.get_by_role("button", name="Show").click()
    expect(page.locator(".points").first).to_contain_text("test facts are answered correctly")
    expect(page.locator("figure img")).to_have_count(2)
    for figure in page.locator("figure").all():
        expect(figure.locator("figcaption")).not_to_be_empty()
    seen.check("trust")


def test_training_is_checked_watched_and_asked(seen, tmp_path):
    page = seen.open("/train")
    page.get_by_label("Name of the relation").fill("<b>my symbols</b>")
    facts = [fact for facts in testbed.testbed_relation("symbol").splits.values() for fact in facts]
    (tmp_path / "pairs.csv").write_text("element,sign\n" + "\n".join(f"{fact.x},{fact.y}" for fact in facts[:20]))
    page.get_by_label("or a file").set_input_files(tmp_path / "pairs.csv")
    expect(page.locator("#problem-file")).to_contain_text("Choose which of the 2 columns of pairs.csv is x")
    expect(page.locator("#upload tbody tr")).to_have_count(5)
    expect(page.get_by_label("Name of the relation")).to_have_value("<b>my symbols</b>")
    page.get_by_label("Which column is x?").select_option("element")
    page.get_by_label("Which column is y?").select_option("sign")
    expect(page.locator("#problem-file p")).to_have_count(0)
    page.get_by_label("Pairs:").fill("\n".join(f"{fact.x}, {fact.y}" for fact in facts[20:]) + "\nsnow, ☃☃☃")
    page.get_by_label("Templates").fill("the symbol of [X] is [Y] .\n[X] without")
    expect(page.locator("#checked .problem")).to_contain_text("[Y]")
    expect(page.locator("#checked .piece").first).to_have_text("the")
    expect(page.locator("#checked")).to_contain_text(f"1 of {len(facts) + 1} pairs cannot be asked")
    seen.check("train")
    page.get_by_label("Templates").fill("the symbol of [X] is [Y] .")
    expect(page.locator("#checked .problem")).to_have_count(0)
    page.get_by_label("Budget").fill("300")
    page.get_by_text("Candidates, split, examples, seeds").click()
    page.get_by_label("Sizes of train, dev and test").fill("60-20")
    page.get_by_role("button", name="Start").click()
    expect(page.locator("#problem-split")).to_contain_text("Write three numbers for train, dev and test")
    page.get_by_label("Sizes of train, dev and test").fill("60-20-20")
    page.get_by_role("button", name="Start").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("<b>my symbols</b>")
    expect(page.locator(".state")).to_contain_text("Done.")
    expect(page.locator("#job figcaption")).to_contain_text(re.compile(r"at first, [\d.]+ after 3\d\d\spairs"))
    seen.check("job")
    page.get_by_role("link", name="Ask it").click()
    expect(page.locator(".answered h3").first).to_contain_text("Tuned mixture")


def test_columns_can_be_chosen_while_the_form_is_checked(seen, tmp_path):
    page = seen.open("/train")
    (tmp_path / "pairs.csv").write_text("element,sign\niron,Fe\ngold,Au")
    page.get_by_label("or a file").set_input_files(tmp_path / "pairs.csv")
    expect(page.locator("#upload tbody tr")).to_have_count(2)
    expect(page.get_by_label("Name of the relation")).to_have_value("pairs")
    held = []
    page.route("**/train/check", lambda route: route.continue_() if held else held.append(route))
    with page.expect_request("**/train/check"):
        page.get_by_label("Which column is x?").select_option("element")
    while not held:  # the request is under way, so its handler is called soon
        page.wait_for_timeout(20)
    page.get_by_label("Which column is y?").select_option("sign")
    held[0].continue_()
    expect(page.locator("#problem-file p")).to_have_count(0)
    expect(page.get_by_label("Which column is x?")).to_have_value("element")
    expect(page.get_by_label("Which column is y?")).to_have_value("sign")


def test_training_is_cancelled(seen):
    page = seen.open("/train")
    page.get_by_label("Name of the relation").fill("long")
    facts = testbed.testbed_relation("symbol").train
    page.get_by_label("Pairs:").fill("\n".join(f"{fact.x}; {fact.y}" for fact in facts))
    page.get_by_label("Templates").fill("the symbol of [X] is [Y] .")
    page.get_by_label("Budget").fill("900000")
    page.get_by_role("button", name="Start").click()
    expect(page.locator("#job img")).to_be_visible()
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator(".state")).to_contain_text("Cancelled.")


def test_a_mistake_in_the_form_is_a_sentence(at):
    sent = {"lm": "testbed:bert", "relation": "x", "facts": "no pair", "templates": "[X] [Y]"}
    response = httpx.post(f"{at.address}/train", data=sent)
    assert response.status_code == 422
    assert "Facts, line 1: expected x and y" in response.text
