"""Facts by the name of a data set on the hub; a folder in the hub's layout stands for it, since tests are offline."""

import sys

import pytest
from builders.commands import exit_code

from askwell.data.facts import Fact
from askwell.data.names import load_relation
from askwell.errors import AskwellError, BadOption

FILES = {
    "train": "country,city\nFrance,Paris\nItaly,Rome\n",
    "validation": "country,city\nPeru,Lima\n",
    "test": "country,city\nNorway,Oslo\nSpain,Madrid\n",
}
ROWS = "".join(f"country {n},city {n}\n" for n in range(20))


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A data set with splits, and one without, each with a card as on the hub."""
    pytest.importorskip("datasets", reason="datasets is not installed: pip install 'askwell[hub]'")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    for name, files in {"capitals": FILES, "whole": {"train": "country,city\n" + ROWS}}.items():
        (tmp_path / name).mkdir()
        listed = "".join(f"  - split: {split}\n    path: {split}.csv\n" for split in files)
        card = f"---\nconfigs:\n- config_name: default\n  data_files:\n{listed}---\n"
        (tmp_path / name / "README.md").write_text(card)
        for split, text in files.items():
            (tmp_path / name / f"{split}.csv").write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_its_own_splits(hub):
    relation = load_relation(f"hub:{hub}/capitals", "country", "city")
    assert relation.name == "capitals"
    assert relation.train == (Fact("France", "Paris"), Fact("Italy", "Rome"))
    assert relation.dev == (Fact("Peru", "Lima"),)
    assert relation.test == (Fact("Norway", "Oslo"), Fact("Spain", "Madrid"))


@pytest.mark.parametrize("name", ["whole", "whole:train", "whole@default:train"])
def test_one_split_is_split_by_us(hub, name):
    relation = load_relation(f"hub:{hub}/{name}", "country", "city", ratio="50-25-25")
    assert [len(facts) for facts in relation.splits.values()] == [10, 5, 5]
    some = load_relation(f"hub:{hub}/whole:train[:10]", "country", "city", ratio="80-10-10")
    assert sum(map(len, some.splits.values())) == 10


def test_the_command_line_takes_it(hub, capsys):
    code = exit_code("audit", "hub:./whole:train", "--x", "country", "--y", "city")
    assert code == 0, capsys.readouterr().err


def test_what_cannot_be_read(hub, monkeypatch, capsys):
    with pytest.raises(AskwellError, match="`x` and `y`"):
        load_relation(f"hub:{hub}/whole:train")
    with pytest.raises(AskwellError, match=r"hub:\./nowhere: datasets cannot read it"):
        load_relation("hub:./nowhere")
    assert exit_code("audit", "hub:./whole:train", "--x", "land") == 2
    assert "hub:./whole:train: --x land: there is no such column; found" in capsys.readouterr().err
    with pytest.raises(BadOption, match="names no data set"):
        load_relation("hub:")
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(BadOption, match=r"pip install 'askwell\[hub\]'"):
        load_relation(f"hub:{hub}/whole:train")
