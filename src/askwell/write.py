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
        path.parent.mkdir(parents=True, exist_ok=True)
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
    """Raises at once, before any work, if nothing can be written in the folder. It leaves the disk as it was."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
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
