"""The tree keeps its order, and the package its names."""

import ast
import subprocess
import sys
from pathlib import Path

from builders.commands import exit_code

import askwell

SOURCE = Path(askwell.__file__).parent

# A part imports only from those above it. ARCHITECTURE.md shows the order.
ORDER = [
    ["version", "errors"],
    ["files", "paper"],
    ["specs"],
    ["data"],
    ["lms"],
    ["prompts"],
    ["answers"],
    ["mixture"],
    ["evaluation"],
    ["training"],
    ["baselines"],
    ["runs"],
    ["tools"],
    ["views"],
    ["server"],
    ["cli"],
    ["__main__"],
]

# The files of views that know nothing of what is shown, so that every object can show itself through them. All other
# files of views say what is shown of evaluations and runs.
PAPER = {"charts", "document", "drawing", "printable", "to_files", "to_html", "to_text"}


def part_of(module: str) -> str:
    _, part, file, *_ = *module.split("."), "", ""
    return "paper" if part == "views" and file in PAPER else part


def imports_of(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("askwell"):
            assert node.level == 0
            found.add(part_of(node.module))
        elif isinstance(node, ast.Import):
            found |= {part_of(name.name) for name in node.names if name.name.startswith("askwell")}
    return found - {""}


def test_every_part_imports_only_from_those_above_it():
    level = {part: number for number, parts in enumerate(ORDER) for part in parts}
    files = [path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py"]
    assert len(files) > 30
    for path in files:
        part = part_of(".".join(["askwell", *path.relative_to(SOURCE).with_suffix("").parts]))
        for imported in imports_of(path) - {part}:
            assert level[imported] < level[part], f"{path.relative_to(SOURCE)} imports from {imported}"


def test_only_views_draw_tables_and_charts():
    for path in SOURCE.rglob("*.*"):
        if path.is_relative_to(SOURCE / "views"):
            continue
        if path.suffix == ".py":
            assert not {"rich.table", "matplotlib"} & all_imports_of(path), path
        if path.suffix in (".py", ".html", ".jinja", ".js"):
            assert "<table" not in path.read_text(encoding="utf-8"), path


def all_imports_of(path: Path) -> set[str]:
    """Every module that a file imports, with the packages that it is in."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [name.name for name in node.names] if isinstance(node, ast.Import) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
        found |= {".".join(name.split(".")[:depth]) for name in names for depth in (1, 2)}
    return found


def modules_imported(path: Path, known: set[str], *, in_functions: bool) -> set[str]:
    """The modules of the package that a file imports, for type checkers alone too."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = list(ast.walk(tree))
    if not in_functions:
        functions = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        inside = {inner for node in functions for inner in ast.walk(node)}
        nodes = [node for node in nodes if node not in inside]
    found = {name.name for node in nodes if isinstance(node, ast.Import) for name in node.names}
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
    return found & known


def test_no_module_imports_itself_through_others():
    """In the rooms above runs, imports inside of functions count as well; further down they keep commands fast."""
    paths = {
        ".".join(("askwell", *path.relative_to(SOURCE).with_suffix("").parts)): path for path in SOURCE.rglob("*.py")
    }
    above = {part for parts in ORDER[: ORDER.index(["runs"])] for part in parts}
    imported = {
        module: modules_imported(path, paths.keys() - {module}, in_functions=part_of(module) in above)
        for module, path in paths.items()
    }
    while free := {module for module, others in imported.items() if not others}:
        imported = {module: others - free for module, others in imported.items() if module not in free}
    assert not imported, f"in or before a cycle: {sorted(imported)}"


def test_the_exported_names_are_these():
    assert sorted(askwell.__all__) == [
        "AskwellError",
        "Candidates",
        "Client",
        "Evaluation",
        "Fact",
        "Failure",
        "FrozenLM",
        "KnowledgeCallback",
        "Mixture",
        "MixtureSpec",
        "Relation",
        "Replies",
        "Run",
        "RunSpec",
        "Template",
        "TrainingSpec",
        "UsageError",
        "__version__",
        "build_run_spec",
        "compare",
        "diff",
        "evaluate",
        "load_candidates",
        "load_folds",
        "load_lm",
        "load_prompts",
        "load_relation",
        "load_runs",
        "nearest_words",
        "run",
        "train",
    ]
    for name in askwell.__all__:
        assert getattr(askwell, name) is not None


def test_help_needs_no_heavy_import():
    check = (
        "import sys, askwell.cli.main as main\n"
        "for command in sys.argv[1:]:\n"
        "    try: main.main(command.split())\n"
        "    except SystemExit as stop: assert stop.code == 0\n"
        "    heavy = {'torch', 'transformers', 'duckdb', 'numpy', 'huggingface_hub', 'matplotlib', 'jinja2', 'scipy'}\n"
        "    heavy |= {'fastapi', 'uvicorn', 'httpx'}\n"
        "    assert not heavy & set(sys.modules), (command, heavy & set(sys.modules))\n"
    )
    commands = ("train", "evaluate", "ask", "baseline", "show", "sweep", "report", "demo", "serve")
    arguments = ("--help", "--version", *(f"{command} --help" for command in commands))
    done = subprocess.run([sys.executable, "-c", check, *arguments], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr


def test_asking_imports_only_what_it_needs():
    check = (
        "import sys, askwell.cli.main as main\n"
        "try: main.main(sys.argv[1:])\n"
        "except SystemExit as stop: assert stop.code == 0\n"
        "needless = {'duckdb', 'gguf', 'matplotlib', 'pyarrow', 'ray', 'scipy.stats', 'askwell.runs.record'}\n"
        "classes = {name for name in sys.modules if name.startswith('transformers.models.') and '.modeling_' in name}\n"
        "others = {name for name in classes if name.split('.')[2] not in ('auto', 'bert')}\n"
        "assert not needless & set(sys.modules), needless & set(sys.modules)\n"
        "assert not others, others\n"
    )
    arguments = ["ask", "--lm", "testbed:bert", "--prompts", "[X] lies in [Y] .", "France"]
    done = subprocess.run([sys.executable, "-c", check, *arguments], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr


def test_a_command_has_a_line_in_the_list_and_all_of_its_docstring_in_its_own_help(capsys):
    line = "Compare two runs on the facts that both answered."
    for arguments, shown in (
        (["--help"], [line]),
        (["compare", "--help"], ["significance, what changed", "--where-b"]),
        (["--help"], [line]),
    ):
        assert exit_code(*arguments) == 0
        told = " ".join(capsys.readouterr().out.split())
        for words in shown:
            assert words in told
