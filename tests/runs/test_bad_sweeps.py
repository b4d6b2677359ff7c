"""Bad sweeps: one message that names the file and the key, before anything is written."""

from pathlib import Path

import pytest

from askwell.errors import BadFile
from askwell.runs import engines as ray_engine
from askwell.runs.engines import check_engine
from askwell.runs.plan import plan_sweep
from askwell.runs.store import new_or_open_store
from askwell.specs.run_spec import read_sweep


def plan(path: Path) -> None:
    sweep = read_sweep(path)
    check_engine(sweep, path)
    plan_sweep(sweep, path, new_or_open_store(path.parent / "store"))


def refuse(path: Path, *parts: str) -> None:
    with pytest.raises(BadFile) as refused:
        plan(path)
    message = str(refused.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    for part in parts:
        assert part in message, message
    assert {inner.name for inner in path.parent.iterdir()} <= {"sweep.toml", "words.txt"}


SOFT = {"soft": {}}


@pytest.mark.parametrize(
    ("changed", "parts"),
    [
        ({"factz": ["a"]}, ["there is no key 'factz'", "did you mean facts?"]),
        ({"settings": {"soft": {"deeep": True}}}, ["settings.soft", "'deeep'", "did you mean deep?"]),
        ({"training": {"pairs": 64}}, ["there is no key 'training'"]),
        ({"mixture": {"deep": True}}, ["there is no key 'mixture'"]),
        ({"settings": {"mixture": {"deeep": True}}}, ["settings.mixture", "'deeep'"]),
        ({"settings": {"soft": {"seed": 3}}}, ["settings.soft", "seeds at the top"]),
        ({"settings": {"soft": {"threads": 3}}}, ["settings.soft", "threads at the top"]),
        ({"settings": {"soft": {"epochs": -1}}}, ["settings.soft.epochs", "greater than or equal to 0"]),
        ({"settings": {"soft": {"method": "magic"}}}, ["settings.soft.method", "'gradient' or 'em'"]),
        ({"settings": {"soft": {"begin": "tab"}}}, ["settings.soft.begin", "'line-break'"]),
        ({"settings": {"soft": {"copies": 3}}}, ["settings.soft", "noise"]),
        ({"settings": {"soft": {"pairs": 9, "epochs": 2}}}, ["settings.soft", "give only one of them"]),
        ({"settings": {"init": {"tuned": False, "epochs": 2}}}, ["settings.init", "epochs would have no effect"]),
        ({"settings": {"soft": {"prompts": ["mani"]}}}, ["settings.soft.prompts", "'mani'", "did you mean many?"]),
        ({"settings": {"soft": {"seeds": [1, 1]}}}, ["settings.soft.seeds", "1 is given twice"]),
        ({"settings": {}}, ["settings"]),
        ({"seeds": [0, 4, 4]}, ["seeds", "4 is given twice"]),
        ({"seeds": [-1]}, ["seeds", "greater than or equal to 0"]),
        ({"seeds": []}, ["seeds"]),
        ({"lms": None}, ["lms is missing"]),
        ({"lms": [{"source": "bert", "revison": "main"}]}, ["lms.0", "'revison'", "did you mean revision?"]),
        ({"lms": ["testbed:bret"]}, ["lms", "'bret'", "did you mean bert?"]),
        ({"lms": ["./nowhere"]}, ["lms", "./nowhere", "no such folder"]),
        ({"facts": ["places/captial"]}, ["facts", "places/captial", "Did you mean places/capital or"]),
        ({"facts": ["testbed:symbl"]}, ["facts", "'symbl'", "did you mean symbol?"]),
        ({"prompts": {"hand": ["nowhere"]}}, ["prompts.hand", "nowhere"]),
        ({"prompts": {"hand": ["[X] only"]}}, ["prompts.hand", "[Y]"]),
        ({"prompts": {"hand": ["hand"], "bed": ["testbed:single"]}}, ["prompts.bed", "none for any relation"]),
        ({"prompts": {"hand": []}}, ["prompts.hand", "at least 1"]),
        ({"prompts": {"back": ["[Y] holds [X]"]}}, ["lms", "llama can use none of the prompts", "y comes before x"]),
        ({"candidates": "nowhere.txt"}, ["candidates", "nowhere.txt"]),
        ({"engine": "rya"}, ["engine", "'in-process', 'pool' or 'ray'"]),
        ({"engine": "in-process", "workers": 3}, ["workers", "only the engine pool has workers"]),
        ({"engine": "pool", "address": "auto"}, ["address", "only the engine ray uses it"]),
        ({"threads": 0}, ["threads", "greater than or equal to 1"]),
        ({"store": 7}, ["store", "string"]),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_one_message_names_the_file_and_the_key(write_sweep, changed, parts):
    refuse(write_sweep(**changed), *parts)


def test_an_engine_that_is_not_installed(write_sweep, monkeypatch):
    monkeypatch.setattr(ray_engine, "find_spec", lambda _name: None)
    refuse(write_sweep(engine="ray"), "engine", "Ray is not installed", "pip install 'askwell[cluster]'")


def test_two_lms_or_two_relations_of_one_name(write_sweep, world, tmp_path_factory):
    import shutil

    elsewhere = tmp_path_factory.mktemp("elsewhere")
    shutil.copytree(world.folder / "llama", elsewhere / "bert")
    shutil.copytree(world.data / "facts" / "places" / "capital", elsewhere / "other")
    shutil.copytree(world.data / "facts" / "places" / "other", elsewhere / "set" / "other")
    lms = [str(world.folder / "bert"), str(elsewhere / "bert")]
    refuse(write_sweep(lms=lms), "lms", "two different LMs are called bert")
    facts = [str(elsewhere / "other"), str(elsewhere / "set")]
    refuse(write_sweep(facts=facts), "facts", "two different relations are called other")


def test_files_that_are_no_toml_or_not_there(tmp_path):
    refuse(tmp_path / "sweep.toml", "no such file")
    (tmp_path / "sweep.toml").write_text("store = 'a'\nlms = bert\n")
    refuse(tmp_path / "sweep.toml", "is not TOML", "line 2")
