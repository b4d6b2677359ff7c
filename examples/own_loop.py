"""A mixture is a torch module: tune it with a loop of your own."""

import random

import torch

import askwell

lm = askwell.load_lm("testbed:bert")
relation = askwell.load_relation("testbed:country_code")
mixture = askwell.Mixture(lm, askwell.load_prompts("testbed:single", relation=relation))
mixture.configure_answers(relation)  # are answers one token, or longer? The facts tell.

random.seed(0)
facts = list(relation.train)
optimizer = torch.optim.Adam(mixture.parameters(), lr=1e-2)
losses = []
for epoch in range(6):
    random.shuffle(facts)
    for start in range(0, len(facts), 32):
        batch = facts[start : start + 32]
        loss = -mixture([fact.x for fact in batch], [fact.y for fact in batch]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print(f"epoch {epoch + 1}: loss {losses[-1]:.3f}")

evaluation = askwell.evaluate(mixture, relation)
print(evaluation)
