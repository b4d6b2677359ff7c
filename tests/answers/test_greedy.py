"""Whether y is what a mixture writes, token by token, against the public model's next-token distributions."""

import pytest
import torch
from enumeration import KEPT as TOKENS
from enumeration import SAME_END, TEMPLATES, _next, by_prompt, end_of, few_tokens, ids, script, spellings
from reference import log_mixture

from askwell.answers.greedy import writes_answers_out
from askwell.data.facts import Fact, Relation
from askwell.mixture.mixture import Mixture

XS = ("Paris", "Mary Cassatt")


@torch.no_grad()
def is_written(twin, x, y_ids, others):
    """Whether y's tokens, and then its end, are the most probable under the mixture, each after those before; tokens
    with which another right answer goes on, or ends, are no rivals."""
    log_joint = twin.log_weights(None)
    ends = [end_of(twin.name, template, x) for template in twin.templates]
    for step in range(len(y_ids) + 1):
        log_p = torch.stack([_next(twin, t, x, tuple(y_ids[:step]), 0) for t in range(len(ends))])
        of_tokens = {
            token: float((log_joint + log_p[:, token]).logsumexp(0))
            for token in ids(twin.name, TOKENS[script(twin.name)])
        }
        of_ends = torch.stack([log_p[t, end] for t, end in enumerate(ends)])
        events = {**of_tokens, **({"end": float((log_joint + of_ends).logsumexp(0))} if step else {})}
        target = y_ids[step] if step < len(y_ids) else "end"
        for other in others:
            if other[:step] == y_ids[:step]:
                rival = other[step] if step < len(other) else "end"
                if rival != target:
                    events.pop(rival, None)
        if events[target] < max(events.values()):
            return False
        log_joint = log_joint + (log_p[:, target] if target != "end" else of_ends)
    return True


@pytest.mark.parametrize(("name", "templates"), [("gpt2", TEMPLATES), ("gpt2", SAME_END), ("bart", TEMPLATES)])
def test_a_y_is_right_if_it_is_what_the_mixture_writes(name, templates):
    mixture, twin = few_tokens(name, templates)
    assert writes_answers_out(mixture)
    every, seen = spellings(name), []
    facts = [Fact(x, y) for x in XS for y in every]
    for right in ([], ["Rome", *[y for y in every if y.startswith("Cass")][:3]], list(every)):
        golds = dict.fromkeys(XS, right)
        encoded = mixture.encode_relation(Relation.of("r", facts[:1], [], facts)).split("test")
        answers = mixture.answering(kind=encoded.kind)
        rankings, log_loss = answers.quick_ranks(encoded, golds)
        for fact, ranking in zip(encoded.facts, rankings, strict=True):
            others = [every[y] for y in golds[fact.x] if y != fact.y]
            assert (ranking.rank == 1) == is_written(twin, fact.x, every[fact.y], others), (fact, golds[fact.x])
            with torch.no_grad():
                each = log_mixture(twin.log_weights(None), list(by_prompt(twin, fact.x, every[fact.y])))
            assert ranking.log_probability == pytest.approx(float(each), abs=1e-9)
        seen.append(sum(ranking.rank == 1 for ranking in rankings))
        assert log_loss == pytest.approx(-sum(r.log_probability for r in rankings) / len(rankings))
    assert seen[0] <= len(XS), "a mixture writes at most one answer to each x"
    if name == "gpt2":  # the seq2seq LM ends no answer of these
        assert len(facts) > seen[2] > seen[0], "other right answers are no rivals, but ends may be"


def test_answers_that_are_not_written_or_have_several_forms_are_searched():
    assert not writes_answers_out(few_tokens("bert")[0])
    lm = few_tokens("gpt2")[0].lm
    assert not writes_answers_out(Mixture(lm, ["[X] is in [Y]", "[X] is in ([Y]"], answers="any-length"))
    assert not writes_answers_out(Mixture(lm, TEMPLATES, answers="any-length", combine="product"))
