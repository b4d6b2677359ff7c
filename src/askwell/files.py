"""Reading and writing files: clear errors, and files that are there whole or not at all."""

import contextlib
import hashlib
import json
import os
import stat
import tempfile
from collections.abc import Callable, Generator, Mapping
from operator import methodcaller
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from askwell.errors import BadFile, BadOption, CannotWrite, DamagedFile

if TYPE_CHECKING:
    from pydantic import ValidationError
    from torch import Tensor

DocumentT = TypeVar("DocumentT")
LARGEST_TEXT = 2**30
"""The most bytes of text that are read; a million facts have about fifty million."""


def read_text(path: Path) -> str:
    """The UTF-8 text of a file, without the byte order mark that some editors write."""
    data = read_bytes(path)
    data = data.removeprefix(b"\xef\xbb\xbf")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadFile(path, f"not UTF-8 ({error.reason}): save the file as UTF-8", line) from error


def read_bytes(path: Path, most: int = LARGEST_TEXT) -> bytes:
    """What is in a file or a pipe, of at most this many bytes. A device, which may have no end, is refused."""
    need_utf8_name(path)
    try:
        # Some files of the system (/proc/kmsg) would otherwise wait for ever.
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        mode = os.fstat(handle).st_mode
        if stat.S_ISDIR(mode):  # which cannot be opened as a file
            os.close(handle)
            raise BadFile(path, "is a folder; name a file")
        with open(handle, "rb") as file:  # noqa: PTH123 - of a handle, not of a path
            if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
                raise BadFile(path, "is a device; name a file")
            if stat.S_ISFIFO(mode):
                os.set_blocking(handle, True)
            data = file.read(most + 1)
    except FileNotFoundError:
        raise BadFile(path, "there is no such file") from None
    except (OSError, ValueError) as error:  # ValueError: a name with a null character
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise BadFile(path, f"the file cannot be read: {reason}") from error
    if data is None:
        raise BadFile(path, "the file cannot be read: it would wait for something to be written to it")
    if len(data) > most:
        raise BadFile(path, f"the file is larger than {most // 2**20} MiB, which is more than askwell reads")
    return data


def read_saved(path: Path, validate: Callable[[bytes], DocumentT], data: bytes | None = None) -> DocumentT:
    """A JSON document that askwell has saved, as `validate` (a typed model's model_validate_json) reads it.

    DamagedFile says which part differs from what was saved. `data` is the content of the file, if it was read before.
    """
    from pydantic import ValidationError

    try:
        return validate(read_bytes(path) if data is None else data)
    except ValidationError as error:
        for problem in error.errors():
            if problem["loc"] == ("version",):
                refuse_later_version(path, {"version": problem["input"]})
        raise DamagedFile(f"{path} is damaged: {problem_in(error)}; restore or remove it") from None


def read_document(path: Path, data: bytes | None = None) -> Any:
    """What a JSON file holds that askwell has saved, before it goes through a typed model."""
    try:
        document = json.loads((read_bytes(path) if data is None else data).decode("utf-8"))
    except (ValueError, RecursionError):
        raise DamagedFile(f"{path} is truncated or altered: it is not JSON") from None
    if has_half_characters(document):
        raise DamagedFile(f"{path} is altered: it holds half a character (a lone surrogate)")
    return document


def refuse_later_version(path: Path, document: Mapping[str, Any], known: int = 1) -> None:
    """Raise if a saved document has a later version of its format than this askwell reads."""
    version = document.get("version")
    if isinstance(version, int) and version > known:
        raise DamagedFile(
            f"{path} was written by a later askwell (version {version} of its format, and this one reads {known}): "
            "upgrade askwell"
        )


def has_half_characters(document: Any) -> bool:
    """Whether texts of a document hold halves of characters, which no file and no terminal takes."""
    try:
        json.dumps(document, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False


def problem_in(error: "ValidationError") -> str:
    """The first of the problems that a typed model found, in a few words."""
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
    """Results (dataclasses or pydantic models, alone or in lists and mappings) as plain data for JSON."""
    from pydantic import TypeAdapter

    if isinstance(result, Mapping):
        return {key: to_json(value) for key, value in result.items()}
    if isinstance(result, list | tuple):
        return [to_json(value) for value in result]
    return TypeAdapter(type(result)).dump_python(result, mode="json", by_alias=True)


def write_whole(path: Path, content: bytes | str) -> None:
    """Writes a file aside and renames it into place, so that a crash leaves the old file or the new one."""
    write_all({path: content})


def write_all(contents: Mapping[Path, bytes | str]) -> None:
    """Writes several files, all of them aside before any is renamed into place: a full disk leaves what was there."""
    data = {path: content.encode() if isinstance(content, str) else content for path, content in contents.items()}
    _write_together({path: methodcaller("write_bytes", each) for path, each in data.items()})


def write_aside(path: Path, write: Callable[[Path], object]) -> None:
    """Lets `write` fill a file beside `path`, and renames it into place when it is whole and on disk."""
    _write_together({path: write})


def _write_together(files: Mapping[Path, Callable[[Path], object]]) -> None:
    """Renames files into place when all of them are whole and on disk; folders that it made go again if it fails."""
    asides: dict[Path, Path] = {}
    made = [folder for path in files for folder in path.parents if not folder.exists()]
    path = Path()
    try:
        for path, write in files.items():
            if path.exists() and not path.is_file() and not path.is_dir():  # renaming would put a file in its place
                raise CannotWrite(f"{path} cannot be written: it is a device or a pipe; name a file")
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
            os.close(handle)
            aside = asides[path] = Path(name)
            write(aside)
            with aside.open("rb") as written:
                os.fsync(written.fileno())
            aside.chmod(0o644)
        for path, aside in asides.items():
            aside.replace(path)
    except OSError as error:
        raise CannotWrite(
            f"{path} cannot be written: {error.strerror or error}; what was there before is kept"
        ) from error
    finally:
        for aside in asides.values():
            with contextlib.suppress(OSError):  # it is gone when all went well
                aside.unlink(missing_ok=True)
        for folder in sorted(set(made), reverse=True):
            with contextlib.suppress(OSError):  # it is not empty when all went well
                folder.rmdir()


@contextlib.contextmanager
def writing(path: Path) -> Generator[None]:
    """Turns an OSError in the block, which writes to a path, into CannotWrite."""
    if "\0" in str(path):  # which would be a ValueError
        raise CannotWrite(f"{path} cannot be written: no name can hold a null character")
    try:
        yield
    except OSError as error:
        raise CannotWrite(f"{path} cannot be written: {error.strerror or error}") from error


def write_folder(folder: Path, files: Mapping[str, str]) -> None:
    """Writes text files, by their paths inside the folder, aside and renames the folder into place when it is whole.

    An empty folder may be there already.
    """
    with writing(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as aside:
            whole = Path(aside) / "whole"
            for name, content in files.items():
                (whole / name).parent.mkdir(parents=True, exist_ok=True)
                (whole / name).write_text(content, encoding="utf-8", newline="\n")
            if folder.exists():
                folder.rmdir()
            whole.rename(folder)


def need_utf8_name(path: Path) -> None:
    """Raises if a file cannot be named in what is written about it."""
    if not has_utf8_name(path):
        raise BadFile(path, "its name, or that of a folder on the way to it, is not UTF-8: rename it")


def has_utf8_name(path: Path | str) -> bool:
    """Whether a path can be written down, in JSON as in SQL: a name on disk can be any bytes."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True


def need_writable_folder(folder: Path, option: str) -> None:
    """Raises, before any work is done, if the folder cannot be written to. The disk stays as it was."""
    if "\0" in str(folder):
        raise BadOption(f"{option} {folder} cannot be written: no name can hold a null character")
    if not has_utf8_name(folder):
        raise BadOption(f"{option} {folder} cannot be written: its name is not UTF-8; name another folder")
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    if not missing and not folder.is_dir():
        raise BadOption(f"{option} {folder} is a file; name a folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except FileExistsError:
        raise BadOption(f"{option} {folder} is a file; name a folder") from None
    except OSError as error:
        raise BadOption(
            f"{option} {folder} cannot be written ({error.strerror or error}); name another folder"
        ) from None
    finally:
        for path in missing:
            with contextlib.suppress(OSError):  # it was never made
                path.rmdir()


def need_writable_file(path: Path, option: str) -> None:
    """Raises, before any work is done, if a file of this name cannot be written."""
    if not has_utf8_name(path):
        raise BadOption(f"{option} {path} cannot be written: its name is not UTF-8; name another file")
    if "\0" in str(path):
        raise BadOption(f"{option} {path} cannot be written: no name can hold a null character")
    if path.is_dir():
        raise BadOption(f"{option} {path} is a folder; name a file")
    need_writable_folder(path.parent, option)


def write_tensors(path: Path, tensors: "Mapping[str, Tensor]", notes: Mapping[str, Any]) -> None:
    """Write tensors and JSON notes; the file's header has a hash of both."""
    from safetensors.torch import save  # here, since this takes seconds and `askwell --help` reads no tensors

    plain = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    written = json.dumps(notes)
    write_whole(path, save(plain, metadata={"notes": written, "sha256": hash_of(plain, written)}))


def read_tensors(path: Path) -> "tuple[dict[str, Tensor], dict[str, Any]]":
    """The tensors and the notes of a file that `write_tensors` has written."""
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
    """The cache folder, whether or not it exists: ASKWELL_CACHE, or askwell in the user's cache folder."""
    own = os.environ.get("ASKWELL_CACHE")
    if own:
        return Path(own)
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "askwell"
    except RuntimeError:
        raise BadOption("there is no home folder: name a folder for the cache in ASKWELL_CACHE") from None
