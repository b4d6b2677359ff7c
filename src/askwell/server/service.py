"""The service without the web: what is served, the queue in front of the LMs, and the training jobs."""

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from askwell.answers.reply import PromptReply, Reply
from askwell.data.facts import Fact, Relation
from askwell.data.templates import Template, parse_template
from askwell.data.testbed import PREFIXES
from askwell.errors import BadTemplate, UsageError
from askwell.lms.available import ListedLM, list_lms
from askwell.lms.families import Unusable
from askwell.lms.frozen import FrozenLM
from askwell.lms.tokenisation import tokenise
from askwell.mixture.mixture import Mixture
from askwell.server.catalogue import TESTBED_PROMPTS, Catalogue, Entry
from askwell.server.jobs import Job, JobBoard, Jobs, Order
from askwell.server.loaded import LMSource, LoadedLMs
from askwell.server.queue import AskQueue
from askwell.server.refusals import NoSuchName, SwitchedOff
from askwell.server.settings import Settings
from askwell.views.words import PromptWords, nearest_words


@dataclass(frozen=True)
class CheckedTemplate:
    """How an LM reads a template."""

    text: str
    problem: str | None
    """Why it cannot be used; None if it can."""
    tokens: tuple[str, ...] = ()
    """Its tokens with the two blanks, in order."""


@dataclass(frozen=True)
class CheckedOrder:
    """What training would be done on."""

    templates: tuple[CheckedTemplate, ...]
    facts: int
    left_out: tuple[tuple[Fact, str], ...]
    """Facts that the LM cannot be asked about, and why."""


class Service:
    """Everything that requests can access."""

    def __init__(self, settings: Settings, jobs: JobBoard | None = None) -> None:
        self.settings = settings
        self.catalogue = Catalogue(settings.runs)
        self.loaded = LoadedLMs(settings.memory)
        self.queue = AskQueue(self.loaded, settings)
        self.jobs: JobBoard = jobs or Jobs(settings.runs, settings.waiting_jobs)

    def ask(self, name: str, xs: Sequence[str], top: int = 10) -> "Future[list[list[Reply]]]":
        """Return a future of the answers of a mixture to each x."""
        return self.queue.ask(self.catalogue.askable(self.catalogue.find(name)), xs, top)

    def words(self, entry: Entry) -> "Future[list[PromptWords]]":
        """Return a future of the prompts of a mixture in words."""
        askable = self.catalogue.askable(entry)
        return self.queue.call(lambda lms: nearest_words(lms.get(askable.lm).mixture(askable)))

    def behind(self, entry: Entry, x: str) -> "Future[list[PromptReply]]":
        """Return a future of the weight of each prompt of a mixture for an x, and what it answers by itself."""
        askable = self.catalogue.askable(entry)
        return self.queue.call(lambda lms: lms.get(askable.lm).mixture(askable).answering().prompts_behind(x))

    def lms(self) -> list[ListedLM]:
        """Return the available LMs."""
        return [lm for lm in list_lms() if lm.ready]

    def lm_source(self, name: str) -> LMSource:
        """Return where the LM named in a request can be loaded from; it must be one of those available."""
        known = {lm.name for lm in self.lms()}
        if name not in known:
            raise NoSuchName(f"there is no LM {name[:80]!r} here; choose from {', '.join(sorted(known))}")
        return LMSource(name)

    def train(self, order: Order) -> Job:
        """Start a training job."""
        self.need_training()
        return self.jobs.start(order)

    def need_training(self) -> None:
        """Raise an error if training is switched off."""
        if not self.settings.training:
            raise SwitchedOff("training is switched off here")

    def tune_testbed(self, entry: Entry) -> Job:
        """Start tuning the testbed's prompts of an entry."""
        if entry.run is not None or not entry.relation.startswith(PREFIXES):
            raise UsageError(f"{entry.name} does not belong to the testbed")
        templates = tuple(entry.templates)
        return self.train(Order(LMSource(entry.lm), entry.relation, (), templates, prompts=TESTBED_PROMPTS))

    def check(self, lm: str, texts: Sequence[str], facts: Sequence[Fact]) -> "Future[CheckedOrder]":
        """Check how an LM reads templates, and which facts it could not be asked with them."""
        source = self.lm_source(lm)
        return self.queue.call(lambda lms: _check(lms.get(source).lm, texts, facts))

    def close(self) -> None:
        """Stop training, finish pending requests, and accept no more."""
        self.jobs.close()
        self.queue.close()


def _check(lm: FrozenLM, texts: Sequence[str], facts: Sequence[Fact]) -> CheckedOrder:
    checked, usable = [], []
    for text in texts:
        try:
            template = parse_template(text)
            tokens = _tokens(lm, template)
        except (BadTemplate, Unusable) as problem:
            checked.append(CheckedTemplate(text, str(problem)))
        else:
            checked.append(CheckedTemplate(text, None, tokens))
            usable.append(template)
    left_out: list[tuple[Fact, str]] = []
    if usable and facts:
        mixture = Mixture(lm, usable)
        encoded = mixture.encode_relation(Relation.of("checked", facts, facts, facts))
        left_out = [(one.fact, one.reason) for one in encoded.left_out("train")]
    return CheckedOrder(tuple(checked), len(facts), tuple(left_out))


def _tokens(lm: FrozenLM, template: Template) -> tuple[str, ...]:
    tokens = tokenise(template, lm.wording)
    lm.family.ask_y(tokens, lm.wording, lm.special)
    names = [lm.tokenizer.convert_ids_to_tokens(list(part)) for part in (tokens.before, tokens.between, tokens.after)]
    return (*names[0], template.first, *names[1], template.second, *names[2])
