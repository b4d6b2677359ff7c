"""What the tests of LMs and mixtures share: sentences written by hand in the tokens of each tokenizer, mixtures whose
parameters are moved away from where they start, and the same quantities from the reference.

Nothing here asks askwell how a text is tokenised: the token strings are the expectation.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import reference
import torch
from builders import tiny, tiny_walks
from builders.specs import paper_spec
from reference import Piece
from torch import Tensor, nn
from transformers.models.modernbert import modeling_modernbert

from askwell.lms.batches import Words, words_of
from askwell.lms.frozen import FrozenLM
from askwell.mixture.mixture import Mixture
from askwell.prompts.weights import DataDependentWeights
from askwell.specs.mixture_spec import MixtureSpec

ALL = list(tiny.TINY)
MASKED = [name for name in ALL if tiny.FAMILY[name] == "masked"]
SEQ2SEQ = [name for name in ALL if tiny.FAMILY[name] == "seq2seq"]
CAUSAL = [name for name in ALL if tiny.FAMILY[name] == "causal"]
FURTHER = list(tiny_walks.WALKED)
"""LMs of which only the walks are tested: all but their layers is as in the others."""
FURTHER_CAUSAL = [name for name in FURTHER if tiny_walks.FAMILIES[name] == "causal"]
WORDPIECE = ["bert", "distilbert", "electra"]
BYTE_LEVEL = ["roberta", "modernbert", "bart", "bart-scaled", "gpt2", "llama"]

# How each template is written. Byte-level BPE stands for llama-metaspace too, with "▁" for "Ġ".
TEMPLATES = {
    "wordpiece": {
        "The capital of [X] is [Y] .": "The capital of [X] is [Y] .",
        "[X], its capital is [Y].": "[X] , its capital is [Y] .",
        "Boston born [X] was in [Y]": "Bost ##on born [X] was in [Y]",
        "[X] [Y]": "[X] [Y]",
        "The city ([X]) lies in [Y] !": "The city ( [X] ) lies in [Y] !",
        "[Y] is the capital of [X]": "[Y] is the capital of [X]",
        "in [Y] lies [X]vik.": "in [Y] lies [X] ##vik .",
        "[X], a city ([Y]).": "[X] , a city ( [Y] ) .",
    },
    "byte-level": {
        "The capital of [X] is [Y] .": "ĠThe Ġcapital Ġof [X] Ġis [Y] Ġ.",
        "[X], its capital is [Y].": "[X] , Ġits Ġcapital Ġis [Y] .",
        "Boston born [X] was in [Y]": "ĠBost on Ġborn [X] Ġwas Ġin [Y]",
        "[X] [Y]": "[X] [Y]",
        "The city ([X]) lies in [Y] !": "ĠThe Ġcity Ġ( [X] ) Ġlies Ġin [Y] Ġ!",
        "[Y] is the capital of [X]": "[Y] Ġis Ġthe Ġcapital Ġof [X]",
        "in [Y] lies [X]vik.": "Ġin [Y] Ġlies [X] vik .",
        "[X], a city ([Y]).": "[X] , Ġa Ġcity Ġ( [Y] ) .",
    },
    "albert": {
        "The capital of [X] is [Y] .": "▁the ▁capital ▁of [X] ▁is [Y] ▁.",
        "[X], its capital is [Y].": "[X] , ▁its ▁capital ▁is [Y] .",
        "Boston born [X] was in [Y]": "▁bost on ▁born [X] ▁was ▁in [Y]",
        "[X] [Y]": "[X] [Y]",
        "The city ([X]) lies in [Y] !": "▁the ▁city ▁( [X] ) ▁lies ▁in [Y] ▁!",
        "[Y] is the capital of [X]": "[Y] ▁is ▁the ▁capital ▁of [X]",
        "in [Y] lies [X]vik.": "▁in [Y] ▁lies [X] vik .",
        "[X], a city ([Y]).": "[X] , ▁a ▁city ▁( [Y] ) .",
    },
}
GLUED_X = "The city ([X]) lies in [Y] !"
"""The one template in which x stands glued to what is before it, except in WordPiece."""
GLUED_Y = "[X], a city ([Y])."
"""The one template in which y does."""
X_FIRST = list(TEMPLATES["wordpiece"])[:5]
Y_FIRST = list(TEMPLATES["wordpiece"])[5:7]

# x as it is after a space, and as it is after a bracket.
XS = {
    "wordpiece": {
        "Paris": ("Paris", "Paris"),
        "Reykjavik": ("Rey ##kja ##vik", "Rey ##kja ##vik"),
        "Mary Cassatt": ("Mary Cass ##att", "Mary Cass ##att"),
        "Cuba": ("Cuba", "Cuba"),
    },
    "byte-level": {
        "Paris": ("ĠParis", "Paris"),
        "Reykjavik": ("ĠRey kja vik", "R e y kja vik"),
        "Mary Cassatt": ("ĠMary ĠCass att", "M a r y ĠCass att"),
        "Cuba": ("Ġ Cuba", "Cuba"),
    },
    "albert": {
        "Paris": ("▁paris", "paris"),
        "Reykjavik": ("▁rey kja vik", "r e y kja vik"),
        "Mary Cassatt": ("▁mary ▁cass att", "m a r y ▁cass att"),
        "Cuba": ("▁ cuba", "cuba"),
    },
}
YS = {"wordpiece": "Rome", "byte-level": "ĠRome", "albert": "▁rome"}
"""The word Rome after a space."""

AROUND = {
    "roberta": "<s> {} </s>",
    "modernbert": "[CLS] {} [SEP]",
    "gpt2": "{}",
    "llama": "<|begin_of_text|> {}",
    "llama-metaspace": "<s> {}",
    "albert": "[CLS] {} [SEP]",
}
AROUND |= dict.fromkeys(WORDPIECE, "[CLS] {} [SEP]")
AROUND |= dict.fromkeys(SEQ2SEQ, "<s> {} </s>")


BEGINS = {
    "gpt2": {"nothing": "", "bos": "<|endoftext|>", "eos": "<|endoftext|>", "line-break": "Ċ"},
    "llama": {"nothing": "", "bos": "", "eos": "<|end_of_text|>", "line-break": "Ċ"},
    "llama-metaspace": {"nothing": "", "bos": "", "eos": "</s>", "line-break": "<0x0A>"},
}
"""What a causal LM's sentence can begin with beside a space: a token behind those of AROUND, and no space, except where
the tokenizer itself begins a text with one, as Llama 2's does."""
WITHOUT_SPACE = {"ĠThe": "T h e", "ĠBost on": "B o s t on"}
"""The first word of a sentence that does not begin with a space."""


def begin_of(name: str, begin: str | None = None) -> str:
    """What a sentence begins with: that which is named, or a line break, where an LM has the choice."""
    return begin or ("line-break" if name in BEGINS else "space")


def script(name: str) -> str:
    """The kind of tokenizer of an LM."""
    if name in WORDPIECE:
        return "wordpiece"
    return "albert" if name == "albert" else "byte-level"


def _in_tokens(name: str, tokens: str) -> str:
    return tokens.replace("Ġ", "▁") if name == "llama-metaspace" else tokens


@functools.cache
def exact(name: str) -> FrozenLM:
    """The LM in float64, with those of its parts that always compute in float32 made exact."""
    model, tokenizer = _made(name)
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm"):
            module.forward = functools.partial(_norm, module)
    return FrozenLM(model, tokenizer, name=name, dtype=torch.float64)


@functools.cache
def plain(name: str) -> FrozenLM:
    """The LM in float32, as it is."""
    model, tokenizer = _made(name)
    return FrozenLM(model, tokenizer, name=name)


def _made(name: str) -> tiny.TinyLM:
    return (tiny.TINY | tiny_walks.WALKED)[name]()


def _norm(module: Any, hidden: Tensor) -> Tensor:
    is_gemma = hasattr(module, "eps")
    weight, small = (1 + module.weight, module.eps) if is_gemma else (module.weight, module.variance_epsilon)
    return weight * hidden * torch.rsqrt(hidden.square().mean(-1, keepdim=True) + small)


def exact_eager_attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *, scaling: float, softcap: float,
    **_options: Any,
) -> tuple[Tensor, None]:  # fmt: skip
    """Gemma 2's attention without its detour through float32."""
    groups = module.num_key_value_groups
    scores = query @ key.repeat_interleave(groups, 1).transpose(2, 3) * scaling
    scores = torch.tanh(scores / softcap) * softcap
    if mask is not None:
        scores = scores + mask
    return (scores.softmax(-1) @ value.repeat_interleave(groups, 1)).transpose(1, 2).contiguous(), None


def exact_rotary(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, unsqueeze_dim: int = 1) -> tuple[Tensor, Tensor]:
    """ModernBERT's rotary embedding without its detour through float32."""
    half = modeling_modernbert.rotate_half
    cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
    return q * cos + half(q) * sin, k * cos + half(k) * sin


def pieces(name: str, template: str, begin: str | None = None) -> list[Piece]:
    """A template in the tokens of an LM, as they are written above."""
    sentence, begin = TEMPLATES[script(name)][template], begin_of(name, begin)
    if begin == "space":
        return reference.written(plain(name).tokenizer, _in_tokens(name, AROUND[name].format(sentence)))
    for spaced, glued in ({} if name == "llama-metaspace" else WITHOUT_SPACE).items():
        sentence = glued + sentence.removeprefix(spaced) if sentence.startswith(spaced) else sentence
    written = reference.written(plain(name).tokenizer, _in_tokens(name, AROUND[name].format(sentence)))
    token = BEGINS[name][begin]
    return reference.begun(written, *plain_ids(name, token)) if token else written


def x_ids(name: str, template: str, x: str, begin: str | None = None) -> list[int]:
    """x in the tokens that it has in a template."""
    is_first = template.startswith("[X]") and begin_of(name, begin) != "space"
    is_glued = template == GLUED_X or (is_first and name != "llama-metaspace")
    tokens = XS[script(name)][x][1 if is_glued else 0]
    return ids(name, tokens)


def plain_ids(name: str, tokens: str) -> list[int]:
    """Tokens that are written out as the vocabulary has them."""
    tokenizer: Any = plain(name).tokenizer
    return [tokenizer.get_vocab()[token] for token in tokens.split()]


def ids(name: str, tokens: str) -> list[int]:
    """Tokens that are written out, as ids."""
    tokenizer: Any = plain(name).tokenizer
    split = _in_tokens(name, tokens).split()
    assert all(token in tokenizer.get_vocab() for token in split), split
    return tokenizer.convert_tokens_to_ids(split)


def usable(name: str, templates: Sequence[str] = (*X_FIRST, *Y_FIRST)) -> list[str]:
    """Those of the templates that the LM can be asked with."""
    is_causal = tiny_walks.FAMILIES[name] == "causal"
    return [template for template in templates if not is_causal or template not in Y_FIRST]


def moved(lm: FrozenLM, templates: Sequence[str], spec: MixtureSpec | None = None, seed: int = 11) -> Mixture:
    """A mixture with all of its parameters away from where they start."""
    mixture = Mixture(lm, templates, spec or paper_spec())
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in mixture.parameters():
            step = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.add_(0.3 * step.to(parameter.dtype))
        if isinstance(mixture.weighting, DataDependentWeights):
            log_temperature_of(mixture).fill_(0.7)
    return mixture


def log_temperature_of(mixture: Mixture) -> nn.Parameter:
    """log T of a data-dependent mixture."""
    assert isinstance(mixture.weighting, DataDependentWeights)
    return mixture.weighting.log_temperature


def words(lm: FrozenLM, xs: Sequence[str]) -> tuple[Words, Tensor]:
    """x's as a mixture takes them, and all of their numbers."""
    return words_of(xs, lm.wording, lm.device), torch.arange(len(xs))


@dataclass
class Twin:
    """The reference's own copy of a mixture: leaves of its own, one slice for each prompt, in float64."""

    name: str
    templates: Sequence[str]
    vectors: list[Tensor]
    deltas: list[dict[str, Tensor]]
    weight_logits: Tensor
    log_temperature: Tensor | None
    """None of a mixture with static weights."""
    begin: str = "space"
    _asked: dict[Any, Tensor] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, templates: Sequence[str], mixture: Mixture) -> "Twin":
        """A twin of a mixture whose prompts are the templates, in this order. The prompt tokens are counted here."""
        begin = mixture.spec.begin
        counts = [_tokens_read(name, template, begin) for template in templates]
        total = sum(counts)
        assert mixture.vectors.shape[0] == total, f"{mixture.vectors.shape[0]} vectors for {total} prompt tokens"

        def leaf(tensor: Tensor) -> Tensor:
            return tensor.detach().double().clone().requires_grad_()

        per_prompt = {stack: torch.stack(layers).split(counts, dim=1) for stack, layers in mixture.layer_deltas.items()}
        return cls(
            name,
            templates,
            [leaf(part) for part in mixture.vectors.split(counts)],
            [{stack: leaf(parts[n]) for stack, parts in per_prompt.items()} for n in range(len(templates))],
            leaf(mixture.weight_logits),
            leaf(log_temperature_of(mixture)) if mixture.weighting.depends_on_x else None,
            begin,
        )

    def log_p_y(self, template: int, x: str) -> Tensor:
        """log p(· | t, x) over the vocabulary."""
        return self._ask(reference.log_p_y, template, x)

    def log_p_x(self, template: int, x: str) -> Tensor:
        """log p(x | t)."""
        return self._ask(reference.log_p_x, template, x)

    def log_weights(self, x: str | None) -> Tensor:
        """log p(t | r), or log p(t | r, x) where x is given."""
        if x is None:
            return reference.log_softmax(self.weight_logits)
        of_x = [self.log_p_x(template, x) for template in range(len(self.templates))]
        assert self.log_temperature is not None
        return reference.data_dependent_log_weights(self.weight_logits, of_x, self.log_temperature)

    def log_mixture(self, x: str, *, data_dependent: bool) -> Tensor:
        """log p(· | x, r) over the vocabulary."""
        each = [self.log_p_y(template, x) for template in range(len(self.templates))]
        return reference.log_mixture(self.log_weights(x if data_dependent else None), each)

    def _ask(self, quantity: Any, template: int, x: str) -> Tensor:
        asked = (quantity, template, x)
        if asked in self._asked:
            return self._asked[asked]
        lm = exact(self.name)
        text = self.templates[template]
        self._asked[asked] = quantity(
            lm.model,
            lm.tokenizer,
            tiny.FAMILY[self.name],
            pieces(self.name, text, self.begin),
            x_ids(self.name, text, x, self.begin),
            self.vectors[template],
            self.deltas[template] or None,
        )
        return self._asked[asked]

    def gradients(self) -> dict[str, Tensor]:
        """The gradients of the leaves under the names and in the shapes of a mixture's parameters."""
        found = {
            "vectors": torch.cat([_grad(leaf) for leaf in self.vectors]),
            "weighting.logits": _grad(self.weight_logits),
        }
        if self.log_temperature is not None:
            found["weighting.log_temperature"] = _grad(self.log_temperature)
        for stack in self.deltas[0]:
            by_layer = torch.cat([_grad(of_prompt[stack]) for of_prompt in self.deltas], dim=1)
            found |= {f"deltas.{stack}.{layer}": gradient for layer, gradient in enumerate(by_layer)}
        return found


def gradients(mixture: nn.Module) -> dict[str, Tensor]:
    """A mixture's gradients by name, zero where there is none."""
    return {name: _grad(parameter) for name, parameter in mixture.named_parameters()}


def _grad(leaf: Tensor) -> Tensor:
    return torch.zeros_like(leaf) if leaf.grad is None else leaf.grad


def _tokens_read(name: str, template: str, begin: str) -> int:
    written = pieces(name, template, begin)
    return len(reference.prompt_ids(reference.before(written, "y") if name in CAUSAL else written))
