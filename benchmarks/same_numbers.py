"""Record the tensors and per-fact outcomes of small runs, or compare them with an earlier record.

Usage: same_numbers.py record FOLDER | same_numbers.py compare FOLDER. Only calls that every version has are used, so
that an old work tree (on PYTHONPATH) can be compared with a new one on the same machine.
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

import askwell

FIELDS = askwell.MixtureSpec.model_fields
# Options and functions had other names in earlier versions, or did not exist.
STATIC = {"weighting": "static"} if "weighting" in FIELDS else {}
DATA_DEPENDENT = {"weighting": "data-dependent"} if "weighting" in FIELDS else {"data_dependent": True}
load_relation = getattr(askwell, "load_relation", None) or askwell.load_relation
load_prompts = getattr(askwell, "load_prompts", None) or askwell.load_prompts

LMS = ("bert", "roberta", "bart", "causal")
SETTINGS = {
    "soft": ({}, {}),
    "deep": ({"deep": True}, {}),
    "data-dependent": (DATA_DEPENDENT, {}),
    "em": ({}, {"method": "em"}),
    "product": ({"combine": "product"}, {}),
    "random": ({"initial": "random"}, {}),
}

# Sentences began with a space before there was a choice.
BEGIN = {"begin": "space"} if "begin" in FIELDS else {}
NAMES_OF_0_1_0 = {"weighting.logits": "weight_logits", "weighting.log_temperature": "log_temperature"}

# Version 0.1.0 knew no other answers, and has no option for them.
ONE_TOKEN = {"answers": "one-token"} if "answers" in FIELDS else {}


def run(lm, mixture_options, training_options):
    relation = load_relation("testbed:capital")
    templates = load_prompts(["testbed:paraphrased"], relation=relation)[:4]
    mixture = askwell.Mixture(lm, templates, askwell.MixtureSpec(**{**ONE_TOKEN, **BEGIN, **STATIC, **mixture_options}))
    askwell.train(mixture, relation, askwell.TrainingSpec(pairs=384, threads=1, **training_options))
    tensors = {}
    for name, tensor in mixture.state_dict().items():
        name = NAMES_OF_0_1_0.get(name, name)
        tensor = tensor.detach().cpu()
        if name.startswith("deltas.") and tensor.dim() == 3:  # one parameter for a stack, as it was in 0.1.0
            for layer, of_layer in enumerate(tensor.unbind(0)):
                tensors[f"{name}.{layer}"] = of_layer.contiguous().clone()
        else:
            tensors[name] = tensor.contiguous().clone()
    outcomes = {}
    for split in ("test", "dev"):
        evaluation = askwell.evaluate(mixture, relation, split=split)
        outcomes[split] = [
            [
                o.x,
                o.y,
                o.rank.hex() if isinstance(o.rank, float) else o.rank,
                float(o.raw_rank).hex(),
                float(o.log_probability).hex(),
                list(o.answers),
                [float(p).hex() for p in o.probabilities],
            ]
            for o in evaluation.outcomes
        ]
    return tensors, outcomes


def main() -> None:
    action, folder = sys.argv[1], Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    different = 0
    for name in LMS:
        lm = askwell.load_lm(f"testbed:{name}", device="cpu")
        for setting, (mixture_options, training_options) in SETTINGS.items():
            tensors, outcomes = run(lm, mixture_options, training_options)
            at = folder / f"{name}-{setting}"
            if action == "record":
                save_file(tensors, f"{at}.safetensors")
                at.with_suffix(".json").write_text(json.dumps(outcomes, ensure_ascii=False))
                print(name, setting, "recorded", flush=True)
                continue
            known, known_outcomes = load_file(f"{at}.safetensors"), json.loads(at.with_suffix(".json").read_text())
            if "log_temperature" not in tensors:  # static weights had one in 0.1.0, which nothing read
                known.pop("log_temperature", None)
            problems = [
                f"tensor {key}"
                for key in sorted(known.keys() | tensors.keys())
                if key not in known or key not in tensors or not torch.equal(known[key], tensors[key])
            ]
            problems += [
                f"outcomes of {split}"
                for split in known_outcomes
                if known_outcomes[split] != json.loads(json.dumps(outcomes[split]))
            ]
            different += bool(problems)
            print(name, setting, "equal" if not problems else f"DIFFERENT: {', '.join(problems)}", flush=True)
    if different:
        sys.exit(f"{different} runs differ")
    print("all equal" if action == "compare" else "done")


if __name__ == "__main__":
    main()
