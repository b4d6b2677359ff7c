"""Reads a text file whole, and says clearly why when it cannot."""

from pathlib import Path

from askwell.errors import BadFile


def read_text(path: Path) -> str:
    """The UTF-8 text of a file, without the byte order mark that some editors write."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise BadFile(path, "there is no such file") from None
    except OSError as error:
        raise BadFile(path, f"the file cannot be read: {error.strerror}") from error
    data = data.removeprefix(b"\xef\xbb\xbf")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadFile(path, f"not UTF-8 ({error.reason}): save the file as UTF-8", line) from error
