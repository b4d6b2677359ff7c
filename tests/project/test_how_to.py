"""The Python of some how-to pages is run: what other tools take from a mixture."""

import re
from pathlib import Path

import pytest
import torch

import askwell
from askwell.training.history import TrainingProgress

PAGES = Path(__file__).parents[2] / "docs" / "how-to"
PLAIN = re.compile(r"^```python\n(.*?)^```", re.M | re.S)
"""A block that names another library in its title needs that library, or its server."""


def test_a_run_goes_to_tensorboard(tmp_path, monkeypatch):
    reading = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator",
        reason="TensorBoard is not installed: pip install tensorboard",
    )
    monkeypatch.chdir(tmp_path)
    kept: dict = {}
    seen = []

    def quick(mixture, relation, progress):
        def see(now: TrainingProgress) -> None:
            seen.append((now, kept["figures"](now)))
            progress(now)

        kept["result"] = trained(mixture, relation, pairs=200, progress=see)

    trained = askwell.train
    monkeypatch.setattr(askwell, "train", quick, raising=False)
    for block in PLAIN.findall((PAGES / "trackers.md").read_text(encoding="utf-8")):
        exec(block, kept)
    read = reading.EventAccumulator("tensorboard")
    read.Reload()
    written = {event.step: event.value for event in read.Scalars("dev/P_at_1")}  # of two at a step it keeps one
    assert written == pytest.approx({line.pairs: line.dev["P@1"] for line in kept["result"].history}, rel=1e-4)

    scored = [found for progress, found in seen if progress.record is not None]
    assert all(found == {} for progress, found in seen if progress.record is None)
    assert {"dev/P_at_1", "dev/log_loss"} <= set(scored[0])
    assert "train/loss" not in scored[0]  # nothing was trained on before the first line


def test_generate_goes_on_as_the_page_shows():
    blocks = PLAIN.findall((PAGES / "own-loop.md").read_text(encoding="utf-8"))
    (block,) = [block for block in blocks if ".generate(" in block]
    names: dict = {"askwell": askwell}
    exec(block, names)
    lm, embeds = names["lm"], names["embeds"]
    with torch.no_grad():
        first = int(lm.model(inputs_embeds=embeds).logits[0, -1].argmax())
    assert names["made"][0, 0] == first
    assert names["text"] == lm.tokenizer.decode(names["made"][0])
