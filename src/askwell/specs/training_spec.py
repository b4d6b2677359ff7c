"""How a mixture is tuned, how AutoPrompt searches for trigger tokens, and how a whole LM is fine-tuned."""

from typing import Any, Literal

from pydantic import Field, model_validator

from askwell.specs.base import Spec

PAPER_BETA1 = 0.9
"""Adam's β1 in the paper's recipe."""


class TrainingSpec(Spec):
    """How a mixture is tuned. Fields that are None are chosen by the recipe."""

    recipe: Literal["plateau", "cycle", "paper"] = "plateau"
    """plateau: train until the dev log-loss stops falling, and average the parameters over the last steps. cycle: one
    learning-rate cycle over a budget; this is the default if a budget is given, and what plateau becomes if dev could
    be scored only a few times. Both scale their learning rates to the LM. paper: Adam at 1e-3, 64 facts per step, at
    most 16 epochs, stopping when dev has not improved for 4."""
    method: Literal["gradient", "em"] = "gradient"
    """gradient: gradient descent on all parameters at once. em: alternate between computing posteriors over prompts and
    gradient steps on the prompts."""
    anneal: float = Field(default=1.0, gt=0, le=1)
    """Temper the posteriors over prompts: they are raised to this power at first, which grows to 1 by the middle of the
    cycle, so that copies of a prompt learn from every fact before facts are shared out; 1 tempers nothing."""
    classify: bool = False
    """Tune the mixture to choose among the candidates only; --candidates sets this."""
    pairs: int | None = Field(default=None, ge=1, lt=2**63)
    """Budget in (fact, prompt) pairs, for one cycle. With --recipe plateau given as well, the maximum instead, which is
    otherwise 2800 for one or two prompts, down to 1600 for many."""
    minutes: float | None = Field(default=None, gt=0)
    """Budget in minutes; how many pairs fit into it is measured at the start."""
    epochs: int | None = Field(default=None, ge=0, lt=2**63)
    """Passes over the training facts: the cycle's budget, or the maximum for the other recipes."""
    patience: int | None = Field(default=None, ge=1, lt=2**63)
    """Stop after this many dev scores without a lower log-loss, or, with the paper's recipe, after this many epochs
    without a better dev score."""
    keep: Literal["P@1", "near-best", "log-loss"] | None = None
    """Which state is kept, by its dev scores: the highest P@1, log-loss breaking ties (the default of the cycle and of
    the paper's recipe); the lowest log-loss of all states whose P@1 is within half a standard error of the highest,
    or within one dev fact (the default otherwise); or the lowest log-loss."""
    batch_facts: int | None = Field(default=None, ge=1, lt=2**63)
    """Batch size in facts, each asked with every prompt; default: about 32 pairs (of at most 16 facts, if the run stops
    by itself), or 64 facts with the paper's recipe."""
    drop_below: float = Field(default=0.0, ge=0, lt=1)
    """Drop prompts whose weight is below this after a third of the cycle, to save computation; 0 drops none."""
    tune_vectors: bool = True
    """Tune the prompt vectors at layer 0."""
    tune_layers: bool = True
    """Tune the perturbations of all layers, if the mixture is deep."""
    tune_weights: bool = True
    """Tune the prompts' weights."""
    fit_weights: bool = True
    """Before the prompts themselves are tuned, fit their weights and temperatures to some train facts, which are read
    once, and drop prompts that then weigh next to nothing; not with the paper's recipe, among candidates, or in a
    product."""
    tune_temperature: bool = True
    """Tune the temperature T, if the weights depend on x."""
    tune_lengths: bool = False
    """If a masked LM's answers can have several tokens, fit how long they are for each x, after the prompts were tuned:
    by how certain the LM is of what stands at as many blanks. Otherwise their lengths are those of the train answers,
    whatever x is. Not with the paper's recipe, among candidates, or in a product."""
    learning_rate: float | None = Field(default=None, gt=0)
    """Adam's learning rate for all parameters (at the peak of the cycle), instead of the recipe's."""
    vectors_rate: float | None = Field(default=None, gt=0)
    """Learning rate for the vectors at layer 0, if it should differ."""
    layers_rate: float | None = Field(default=None, gt=0)
    """Learning rate for the perturbations of deeper layers, if it should differ."""
    weights_rate: float | None = Field(default=None, gt=0)
    """Learning rate for the weights' logits and log T, if it should differ."""
    beta1: float | None = Field(default=None, ge=0, lt=1)
    """Adam's β1, the decay rate of the mean gradient; default: 0.9, or 0.7 if several prompts are tuned (0.9 with the
    paper's recipe)."""
    beta2: float = Field(default=0.999, ge=0, lt=1)
    """Adam's β2, the decay rate of the mean squared gradient."""
    epsilon: float = Field(default=1e-8, gt=0)
    """Adam's ε, which avoids division by zero."""
    l2: float = Field(default=0.0, ge=0)
    """Weight of an L2 penalty on what tuning adds to the prompts, on top of the mean loss per fact."""
    threads: int | None = Field(default=None, ge=1, le=1024)
    """CPU threads; default: all. A different number of threads can change the last digits."""

    @property
    def kept_by(self) -> Literal["P@1", "near-best", "log-loss"]:
        """Which state is kept: as chosen, or the recipe's default."""
        return self.keep or ("near-best" if self.recipe == "plateau" else "P@1")

    @model_validator(mode="before")
    @classmethod
    def _a_budget_is_for_a_cycle(cls, choices: Any) -> Any:
        if isinstance(choices, dict) and "recipe" not in choices:
            budgets = [choices.get(name) for name in ("pairs", "minutes", "epochs")]
            is_tempered = choices.get("anneal") not in (None, 1)
            if any(budget is not None for budget in budgets) or choices.get("drop_below") or is_tempered:
                return {**choices, "recipe": "cycle"}
        return choices

    @model_validator(mode="after")
    def _fits_together(self) -> "TrainingSpec":
        budgets = [name for name in ("pairs", "minutes", "epochs") if getattr(self, name) is not None]
        if len(budgets) > 1:
            raise ValueError(f"{' and '.join(budgets)} all set the budget: give only one of them")
        if self.recipe == "paper" and (self.pairs is not None or self.minutes is not None):
            raise ValueError(f"{budgets[0]} is a budget of the cycle; the paper's recipe takes epochs and patience")
        if self.recipe != "cycle" and self.drop_below:
            raise ValueError("drop_below goes with the cycle; the other recipes keep all prompts")
        if self.anneal < 1 and self.recipe != "cycle":
            raise ValueError("anneal goes with the cycle, whose middle is known: leave out the recipe")
        if self.anneal < 1 and self.classify:
            raise ValueError("EM's posteriors are of whole answers: leave out anneal to choose among candidates")
        if self.recipe == "cycle" and self.patience is not None:
            raise ValueError("patience goes with the other recipes; the cycle runs to the end of its budget")
        if self.classify and self.method == "em":
            raise ValueError("EM has no closed form among candidates; leave out the method, so that gradients are used")
        return self


BaselineName = Literal[
    "lama",
    "few-shot",
    "lpaqa-top1",
    "lpaqa-uniform",
    "lpaqa-weights",
    "lpaqa-product",
    "optiprompt-manual",
    "optiprompt-random",
    "autoprompt",
    "fine-tuning",
]


class AutoPromptSpec(Spec):
    """How trigger tokens are searched for. The defaults are those that AutoPrompt used for facts."""

    triggers: int = Field(default=5, ge=1, le=100)
    """Number of trigger tokens, if no prompt is given to start from."""
    candidates: int = Field(default=10, ge=1, lt=2**63)
    """Tokens tried in place of one trigger in each iteration."""
    iterations: int = Field(default=1000, ge=1, lt=2**63)
    """Number of iterations; each tries to replace one trigger."""
    sampled_facts: int = Field(default=56, ge=1, lt=2**63)
    """Train facts drawn for the gradient of each iteration, and again for trying its candidates."""
    start: Literal["mask", "random"] = "mask"
    """Start from mask tokens, each of which is later replaced by a word, or from words drawn at random."""
    allow_ys: bool = False
    """Allow tokens that spell a right answer of the relation, in any split."""
    allow_proper_nouns: bool = False
    """Allow tokens that begin a word with a capital letter."""
    whole_words: bool = False
    """Use only tokens that are whole words, so that the prompt can be typed as text."""

    @model_validator(mode="after")
    def _fits_together(self) -> "AutoPromptSpec":
        if self.start == "mask" and self.iterations < self.triggers:
            raise ValueError(
                f"{self.iterations} iterations cannot replace all {self.triggers} masks with words; use at least "
                f"{self.triggers} iterations, or start from random words"
            )
        return self


class FineTuningSpec(Spec):
    """How all weights of an LM are tuned: AdamW with a linear warm-up and a linear decay to 0."""

    epochs: int = Field(default=10, ge=0, lt=2**63)
    """Passes over the train facts; dev is scored after each."""
    batch_facts: int = Field(default=16, ge=1, lt=2**63)
    """Facts per step."""
    learning_rate: float = Field(default=2e-5, gt=0)
    """AdamW's peak learning rate."""
    weight_decay: float = Field(default=0.01, ge=0)
    """AdamW's weight decay, on all weights except biases and normalisation layers."""
    warm_up: float = Field(default=0.1, ge=0, lt=1)
    """The fraction of the steps over which the learning rate grows."""
    dropout: bool = True
    """Train with the dropout of the LM's own config."""
