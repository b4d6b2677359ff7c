"""Reading and writing files: clear errors, and files that are there whole or not at all."""

import contextlib
import difflib
import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from askwell.errors import BadFile, BadOption, CannotWrite, DamagedFile

if TYPE_CHECKING:
    from pydantic import ValidationError
    from torch import Tensor

DocumentT = TypeVar("DocumentT")
_OWN_FILES = "own_files.txt"
LARGEST_TEXT = 2**30
"""The most bytes of text that are read; a million facts have about fifty million."""


def read_text(path: Path) -> str:
    """Return the UTF-8 text of a file, without the byte order mark that some editors write."""
    data = read_bytes(path)
    data = data.removeprefix(b"\xef\xbb\xbf")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadFile(path, f"not UTF-8 ({error.reason}): save the file as UTF-8", line) from error


def read_bytes(path: Path, most: int = LARGEST_TEXT) -> bytes:
    """Return what is in a file or a pipe, of at most this many bytes: a device may have no end."""
    need_utf8_name(path)
    try:
        with path.open("rb") as file:
            data = file.read(most + 1)
    except FileNotFoundError:
        raise BadFile(path, "there is no such file") from None
    except IsADirectoryError:
        raise BadFile(path, "is a folder; name a file") from None
    except (OSError, ValueError) as error:  # ValueError: a name with a null character
        raise BadFile(path, f"the file cannot be read: {_reason(error)}") from error
    if len(data) > most:
        raise BadFile(path, f"the file is larger than {most // 2**20} MiB, which is more than askwell reads")
    return data


def read_saved(path: Path, validate: Callable[[bytes], DocumentT]) -> DocumentT:
    """Return a JSON document that askwell has saved, as `validate` (a typed model's model_validate_json) reads it.

    DamagedFile says which part differs from what was saved.
    """
    from pydantic import ValidationError

    try:
        return validate(read_bytes(path))
    except ValidationError as error:
        for problem in error.errors():
            if problem["loc"] == ("version",):
                refuse_later_version(path, {"version": problem["input"]})
        raise DamagedFile(f"{path} is damaged: {problem_in(error)}; restore or remove it") from None


def refuse_later_version(path: Path, document: Mapping[str, Any], known: int = 1) -> None:
    """Raise if a saved document has a later version of its format than this askwell reads."""
    version = document.get("version")
    if isinstance(version, int) and version > known:
        raise DamagedFile(
            f"{path} was written by a later askwell (version {version} of its format, and this one reads {known}): "
            "upgrade askwell"
        )


_IN_A_RUN = ("run.json", "*/run.json", "runs/*/run.json", "config.json", "mixture/config.json")
"""What a run, a folder of runs, a store or a saved mixture has in it."""


def run_like(path: Path | str) -> str:
    """Return the end of a message about a folder of runs or of a mixture that is not there: the one beside it with the
    most similar name; nothing if none is similar."""
    wanted = Path(path)
    beside = {folder.name: folder for folder in wanted.parent.glob("*") if folder.is_dir()}
    for name in difflib.get_close_matches(wanted.name, beside, n=len(beside) or 1):
        if any(next(beside[name].glob(one), None) for one in _IN_A_RUN):
            return f"; did you mean {beside[name]}?"
    return ""


def is_utf8(value: Any) -> bool:
    """Return whether a path, or all texts of a document, can be written in UTF-8.

    A name on disk can be any bytes, and JSON can hold halves of characters; no file and no terminal takes those.
    """
    try:
        (str(value) if isinstance(value, Path) else json.dumps(value, ensure_ascii=False)).encode()
    except UnicodeEncodeError:
        return False
    return True


def problem_in(error: "ValidationError") -> str:
    """Return the first of the problems that a typed model found, in a few words."""
    problem = error.errors()[0]
    where = ".".join(map(str, problem["loc"]))
    words = {"missing": "is missing", "extra_forbidden": "is not known to this version"}
    said = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "literal_error":
        return f"{where} is {str(problem['input'])[:40]!r}, and this askwell reads {problem['ctx']['expected']}"
    if problem["type"] in words:
        return f"{where} {words[problem['type']]}"
    return f"{where}: {said}" if where else said


def to_json(result: Any) -> Any:
    """Return results (dataclasses or pydantic models, alone or in lists and mappings) as plain data for JSON."""
    from pydantic import TypeAdapter

    if isinstance(result, Mapping):
        return {key: to_json(value) for key, value in result.items()}
    if isinstance(result, list | tuple):
        return [to_json(value) for value in result]
    return TypeAdapter(type(result)).dump_python(result, mode="json", by_alias=True)


def hash_json(value: Any) -> str:
    """Return the SHA-256 of a document as JSON with sorted keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


@contextlib.contextmanager
def write_aside(path: Path) -> Generator[Path]:
    """Yield a path for a new file or folder, which takes the place of `path` when the block ends and it is on disk.

    A crash leaves what was there before, a failure also no folder that was made for it. A folder only takes the place
    of an empty one. Whatever else the block writes beside the yielded path is removed.
    """
    made = [folder for folder in path.parents if not folder.exists()]
    try:
        if path.exists() and not path.is_file() and not path.is_dir():  # renaming would put a file in its place
            raise CannotWrite(f"{path} cannot be written: it is a device or a pipe; name a file")
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name[:40]}.") as work:
            aside = Path(work) / "new"
            yield aside
            sync_to_disk(aside)
            if aside.is_dir() and path.is_dir():
                path.rmdir()
            aside.replace(path)
    except OSError as error:
        raise CannotWrite(f"{path} cannot be written: {_reason(error)}; what was there before is kept") from error
    finally:
        for folder in made:
            with contextlib.suppress(OSError):  # it is not empty when all went well
                folder.rmdir()


def write_whole(path: Path, content: bytes | str) -> None:
    """Write a file aside and rename it into place, so that a crash leaves the old file or the new one."""
    write_all({path: content})


def write_all(contents: Mapping[Path, bytes | str]) -> None:
    """Write several files, all of them aside before any is renamed into place: a full disk leaves what was there."""
    with contextlib.ExitStack() as stack:
        for path, content in reversed([*contents.items()]):  # which a stack renames in their order
            aside = stack.enter_context(write_aside(path))
            aside.write_bytes(content.encode() if isinstance(content, str) else content)


def write_folder(folder: Path, files: Mapping[str, str]) -> None:
    """Write text files, by their paths inside a new folder, which is there whole or not at all."""
    with write_aside(folder) as aside:
        for name, content in files.items():
            (aside / name).parent.mkdir(parents=True, exist_ok=True)
            (aside / name).write_text(content, encoding="utf-8", newline="\n")


def sync_to_disk(path: Path) -> None:
    """Wait until a file, or a folder with all that is in it, is on disk."""
    if os.name != "posix":  # elsewhere, a file that is open for reading cannot be waited for
        return
    for each in [*(path.rglob("*") if path.is_dir() else ()), path]:
        handle = os.open(each, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def list_own_files(folder: Path) -> None:
    """Write into a new folder which files are in it, so that later these can be removed and nothing else."""
    names = sorted(path.name for path in folder.iterdir())
    (folder / _OWN_FILES).write_text("".join(f"{name}\n" for name in (*names, _OWN_FILES)), "utf-8")


def remove_own_files(folder: Path) -> None:
    """Remove the files that `list_own_files` found in a folder, and the folder if nothing else is in it."""
    listing = folder / _OWN_FILES
    for name in read_text(listing).splitlines() if listing.is_file() else ():
        if (own := folder / Path(name).name).is_file():
            own.unlink()
    with contextlib.suppress(OSError):  # it is not there, or has files that were put there later
        folder.rmdir()


@contextlib.contextmanager
def writing(path: Path) -> Generator[None]:
    """Turn an OSError in the block, which writes to a path, into CannotWrite."""
    try:
        yield
    except OSError as error:
        raise CannotWrite(f"{path} cannot be written: {_reason(error)}") from error


def need_utf8_name(path: Path) -> None:
    """Raise BadFile if a file cannot be named in what is written about it."""
    if not is_utf8(path):
        raise BadFile(path, "its name, or that of a folder on the way to it, is not UTF-8: rename it")


def need_writable_folder(folder: Path, option: str) -> None:
    """Raise BadOption, before any work is done, if the folder cannot be written to. The disk stays as it was."""
    problem = None if is_utf8(folder) else "its name is not UTF-8"
    try:
        if folder.exists() and not folder.is_dir():
            raise BadOption(f"`folder` {folder} is a file; name a folder", folder=option)
        with tempfile.TemporaryDirectory(
            dir=next(path for path in (folder, *folder.parents) if path.exists())
        ) as inside:
            (Path(inside) / folder.name).mkdir(exist_ok=True)  # which tells whether it can have its name
    except (OSError, ValueError) as error:  # ValueError: a name with a null character
        problem = problem or _reason(error)
    if problem is not None:
        raise BadOption(f"`folder` {folder} cannot be written ({problem}); name another folder", folder=option)


def need_writable_file(path: Path, option: str) -> None:
    """Raise BadOption, before any work is done, if a file of this name cannot be written."""
    if path.is_dir():
        raise BadOption(f"`file` {path} is a folder; name a file", file=option)
    if not is_utf8(path):
        raise BadOption(f"`file` {path} cannot be written: its name is not UTF-8; name another file", file=option)
    need_writable_folder(path.parent, option)


def _reason(error: OSError | ValueError) -> str:
    return getattr(error, "strerror", None) or str(error)


def write_tensors(path: Path, tensors: "Mapping[str, Tensor]", notes: Mapping[str, Any]) -> None:
    """Write tensors and JSON notes; the file's header has a hash of both."""
    from safetensors.torch import save  # here, since this takes seconds and `askwell --help` reads no tensors

    plain = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    written = json.dumps(notes)
    write_whole(path, save(plain, metadata={"notes": written, "sha256": hash_of(plain, written)}))


def read_tensors(path: Path) -> "tuple[dict[str, Tensor], dict[str, Any]]":
    """Return the tensors and the notes of a file that `write_tensors` has written."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - a handle, not a mapping
        notes = json.loads(header["notes"])
    except (SafetensorError, KeyError, ValueError, RecursionError, OSError):
        raise DamagedFile(f"{path} is truncated or altered; remove it to start the run over") from None
    if header.get("sha256") != hash_of(tensors, header["notes"]):
        raise DamagedFile(f"{path} was altered; remove it to start the run over")
    return tensors, notes


def hash_of(tensors: "Mapping[str, Tensor]", notes: str = "") -> str:
    """Return a hash of the tensors' names, shapes, types and contents, and of the notes."""
    from safetensors.torch import save

    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in sorted(tensors.items())}
    return hashlib.sha256(save(plain) + notes.encode()).hexdigest()


def cache_folder() -> Path:
    """Return the cache folder, whether or not it exists: ASKWELL_CACHE, or askwell in the user's cache folder."""
    own = os.environ.get("ASKWELL_CACHE")
    if own:
        return Path(own)
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "askwell"
    except RuntimeError:
        raise BadOption("there is no home folder: name a folder for the cache in ASKWELL_CACHE") from None
