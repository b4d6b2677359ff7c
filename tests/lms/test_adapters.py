"""LoRA adapters: the merged weights are those of the formula, W + alpha / r · B A, on the LM that the adapter names."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from builders import tiny

from askwell.errors import LMUnavailable
from askwell.lms.load import load_lm

peft = pytest.importorskip("peft")

Checkpoints = Callable[[str], Path]
ALPHA, RANK = 6, 2


def write_adapter(base: Path, folder: Path, targets: list[str]) -> dict[str, torch.Tensor]:
    """Write an adapter with random matrices; return what it adds to each weight, by the weight's name."""
    model = tiny.TINY[base.name]()[0]
    config = peft.LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=targets)
    adapted = peft.get_peft_model(model, config)
    adapted.peft_config["default"].base_model_name_or_path = str(base)
    draw = torch.Generator().manual_seed(0)
    added: dict[str, torch.Tensor] = {}
    for name, module in adapted.base_model.model.named_modules():
        if hasattr(module, "lora_A"):
            down, up = module.lora_A["default"].weight, module.lora_B["default"].weight
            with torch.no_grad():
                for matrix in (down, up):
                    matrix.copy_(torch.randn(matrix.shape, generator=draw))
            delta = ALPHA / RANK * up.detach() @ down.detach()
            added[f"{name}.weight"] = delta.T if module.fan_in_fan_out else delta
    adapted.save_pretrained(folder)
    return added


@pytest.mark.filterwarnings("ignore:fan_in_fan_out")
@pytest.mark.parametrize(("name", "targets"), [("llama", ["q_proj", "down_proj"]), ("bert", ["query"])])
def test_an_adapter_is_merged(name: str, targets: list[str], checkpoints: Checkpoints, tmp_path: Path) -> None:
    added = write_adapter(checkpoints(name), tmp_path / "adapter", targets)
    assert len(added) >= 2
    before, after = (load_lm(path, device="cpu") for path in (checkpoints(name), tmp_path / "adapter"))
    for key, tensor in before.model.state_dict().items():
        expected = tensor + added[key] if key in added else tensor
        torch.testing.assert_close(after.model.state_dict()[key], expected, msg=key)
    assert before.model.state_dict().keys() == after.model.state_dict().keys()
    assert type(before.model) is type(after.model)
    assert (after.identity.name, after.source) == ("adapter", str(tmp_path / "adapter"))
    assert after.identity.differences(before.identity) == ["weights"]
    assert after.identity == load_lm(tmp_path / "adapter", device="cpu").identity


def test_what_cannot_be_merged_is_refused_in_a_sentence(
    checkpoints: Checkpoints, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "adapter"
    write_adapter(checkpoints("llama"), folder, ["q_proj"])
    config = json.loads((folder / "adapter_config.json").read_text())

    def configured(**changes: object) -> None:
        (folder / "adapter_config.json").write_text(json.dumps({**config, **changes}))

    configured(base_model_name_or_path=str(tmp_path / "moved" / "away"))
    with pytest.raises(
        LMUnavailable, match=r"away: there is no such folder.* the base_model_name_or_path of the adapter"
    ):
        load_lm(folder, device="cpu")
    configured(base_model_name_or_path=None)
    with pytest.raises(LMUnavailable, match="does not say of which LM it is an adapter"):
        load_lm(folder, device="cpu")
    configured(base_model_name_or_path=str(checkpoints("gpt2")))
    with pytest.raises(LMUnavailable, match="the adapter cannot be put on"):
        load_lm(folder, device="cpu")
    configured()
    (folder / "adapter_model.safetensors").write_bytes(b"nothing")
    with pytest.raises(LMUnavailable, match="the adapter cannot be put on"):
        load_lm(folder, device="cpu")
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(LMUnavailable, match="pip install peft"):
        load_lm(folder, device="cpu")


def test_prompt_tuning_is_no_change_of_weights(checkpoints: Checkpoints, tmp_path: Path) -> None:
    model = tiny.TINY["llama"]()[0]
    config = peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=2)
    adapted = peft.get_peft_model(model, config)
    adapted.peft_config["default"].base_model_name_or_path = str(checkpoints("llama"))
    adapted.save_pretrained(tmp_path)
    with pytest.raises(LMUnavailable, match="PROMPT_TUNING cannot be merged into weights"):
        load_lm(tmp_path, device="cpu")
