"""Writes files so that they are there whole or not at all."""

import contextlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from askwell.errors import BadOption, CannotWrite


def write_whole(path: Path, content: bytes | str) -> None:
    """Writes a file aside and renames it into place, so that a crash leaves the old file or the new one."""
    data = content.encode() if isinstance(content, str) else content
    write_aside(path, lambda aside: aside.write_bytes(data))


def write_aside(path: Path, write: Callable[[Path], object]) -> None:
    """Lets `write` fill a file beside `path`, and renames it into place when it is whole and on disk."""
    aside = None
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        os.close(handle)
        aside = Path(name)
        write(aside)
        with aside.open("rb") as written:
            os.fsync(written.fileno())
        aside.chmod(0o644)
        aside.replace(path)
    except OSError as error:
        raise CannotWrite(
            f"{path} cannot be written: {error.strerror or error}; what was there before is kept"
        ) from error
    finally:
        if aside is not None:
            with contextlib.suppress(OSError):  # it is gone when all went well
                aside.unlink(missing_ok=True)


def need_writable_folder(folder: Path, option: str) -> None:
    """Makes the folder if need be, and raises at once, before any work, if nothing can be written there."""
    made = None
    try:
        if not folder.exists():
            folder.mkdir(parents=True)
            made = folder
        if not folder.is_dir():
            raise BadOption(f"{option} {folder} is a file; name a folder")
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        if made is not None:
            with contextlib.suppress(OSError):
                made.rmdir()
        raise BadOption(
            f"{option} {folder} cannot be written ({error.strerror or error}); name another folder"
        ) from None
