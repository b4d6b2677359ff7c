"""A model of the lm-evaluation-harness that answers through a tuned mixture, or through untuned prompts.

The harness finds models only among its own, so it is started from here, with all its options:

    python -m askwell.tools.lm_eval --model askwell --model_args mixture=FOLDER --include_path TASKS --tasks TASK
"""

import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Any

import torch

from askwell.data.names import load_prompts, load_relation
from askwell.errors import AskwellError, BadOption, UsageError
from askwell.lms.load import load_lm
from askwell.mixture.mixture import Mixture
from askwell.runs.sources import configure_answers, find_mixture, note_left_out_prompts, saved_mixture

MODEL = "askwell"
_Request = Any
"""An `Instance` of the harness: `args` are a context and what is asked of it."""


class HarnessModel:
    """Answers the harness's requests: the context of a request is x, a continuation is y."""

    def __init__(
        self,
        mixture: str | None = None,
        lm: str | None = None,
        prompts: str | None = None,
        facts: str | None = None,
        device: str | None = None,
        dtype: Any = "auto",
        **harness: Any,
    ) -> None:
        """Take --model_args: `mixture` is a run or a saved mixture; or `lm`, `prompts` and, for what the facts decide
        (what a causal LM reads first, how long answers are), `facts` make untuned prompts. What the harness adds by
        itself is ignored."""
        super().__init__()
        unknown = [name for name in harness if name not in ("batch_size", "max_batch_size")]
        if unknown:
            raise BadOption(
                f"--model_args {unknown[0]}: {MODEL} takes mixture; or lm, prompts and facts; device, dtype"
            )
        if (mixture is None) == (prompts is None):
            raise BadOption("--model_args needs mixture=FOLDER, or lm=NAME and prompts=FILE for untuned prompts")
        if device and device.startswith("cuda") and not torch.cuda.is_available():
            device = None  # the harness names a GPU unless it is told otherwise
        if mixture is not None:
            found = find_mixture(mixture, None, _note)
            self.mixture = saved_mixture(found, lm, revision=None, device=device, dtype=dtype)
            return
        if lm is None:
            raise BadOption("--model_args prompts=…: untuned prompts need lm=NAME")
        relation = None if facts is None else load_relation(facts)
        templates = load_prompts(prompts or "", relation)
        self.mixture = Mixture(load_lm(lm, device=device, dtype=dtype), templates, relation=relation)
        note_left_out_prompts(self.mixture, _note)
        configure_answers(self.mixture, relation, None)

    def loglikelihood(self, requests: Sequence[_Request], **_shown: Any) -> list[tuple[float, bool]]:
        """Return log p(y | x, r) of each request, and whether y is the mixture's answer: the best of those that are
        offered for a document, or of all if it is the only one."""
        offered: dict[Any, list[str]] = {}
        places = [(getattr(request, "doc_id", None), *_texts(request)) for request in requests]
        for document, x, y in places:
            offered.setdefault((document, x), []).append(y)
        together: dict[tuple[str, ...], list[Any]] = {}  # xs with the same choices are asked at once
        for question, ys in offered.items():
            together.setdefault(tuple(dict.fromkeys(ys)), []).append(question)
        scored: dict[Any, tuple[float, bool]] = {}
        for ys, questions in together.items():
            scores = self.mixture.candidate_log_probs([x for _, x in questions], ys)
            for (document, x), row, best in zip(questions, scores.tolist(), scores.argmax(1).tolist(), strict=True):
                answer = ys[best] if len(ys) > 1 else self._answer(x)
                scored |= {(document, x, y): (of_y, y == answer) for y, of_y in zip(ys, row, strict=True)}
        return [scored[place] for place in places]

    def loglikelihood_rolling(self, requests: Sequence[_Request], **_shown: Any) -> list[float]:
        """Refuse: no mixture gives running text a probability."""
        raise UsageError(
            f"a mixture answers questions and gives no probability to running text, which {len(requests)} requests of "
            "these tasks ask for (loglikelihood_rolling): choose tasks with choices or answers, or --model hf"
        )

    def generate_until(self, requests: Sequence[_Request], **_shown: Any) -> list[str]:
        """Return the most probable answer to each context, up to the first of the strings that end it."""
        answers = []
        for context, options in (request.args for request in requests):
            if options.get("do_sample"):
                raise UsageError("a mixture gives its most probable answer and cannot sample: leave out do_sample")
            answers.append(_until(self._answer(context.strip()), options))
        return answers

    def _answer(self, x: str) -> str:
        return self.mixture.ask(x, top=1)[0].y


def _texts(request: _Request) -> tuple[str, str]:
    context, continuation = request.args
    return context.strip(), continuation.strip()


def _until(answer: str, options: Mapping[str, Any]) -> str:
    ends = options.get("until") or []
    for end in [ends] if isinstance(ends, str) else ends:
        answer = answer.split(end)[0] if end else answer
    return answer


def _note(line: str) -> None:
    print(line, file=sys.stderr)


@cache
def register() -> Any:
    """Add the model to those of the harness, under the name askwell, and return its class."""
    try:
        model, registry = import_module("lm_eval.api.model"), import_module("lm_eval.api.registry")
    except ImportError:
        raise BadOption("this needs the lm-evaluation-harness, which is not installed: pip install lm_eval") from None
    return registry.register_model(MODEL)(type("AskwellLM", (HarnessModel, model.LM), {}))


def main() -> None:
    """Run the harness's own command line, with the model askwell among its models."""
    try:
        register()
        import_module("lm_eval.__main__").cli_evaluate()
    except AskwellError as error:
        sys.exit(f"askwell: {error.for_command_line()}")


if __name__ == "__main__":
    main()
