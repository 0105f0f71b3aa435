"""Writing without ever leaving half a file: atomic replacement, and locked appending of lines."""

import fcntl
import os
import tempfile
from pathlib import Path

from .errors import FileError


def write_atomic(path: Path | str, content: bytes) -> None:
    """Write `content` to `path` so that a reader sees the old file or the new one, never a part.

    Raises:
        FileError: the folder cannot be made or written, or the disk is full; the old file is left as it was.
    """
    path = Path(path)
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except OSError as error:
        if temporary and os.path.exists(temporary):
            os.unlink(temporary)
        raise FileError(f"cannot write {path}: {reason(error)}; choose another place or free some space") from error
    except BaseException:  # Ctrl-C between the two steps
        if temporary and os.path.exists(temporary):
            os.unlink(temporary)
        raise


def append_line(path: Path | str, line: str) -> None:
    """Append one line under a lock, after cutting off a torn last line that a killed process left.

    Raises:
        FileError: the file cannot be written, or the disk is full; what was in it stays.
    """
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "ab+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            end = _end_of_whole_lines(file)
            file.truncate(end)
            try:
                file.write(line.encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
            except OSError:
                os.truncate(path, end)
                raise
    except OSError as error:
        raise FileError(f"cannot append to {path}: {reason(error)}; choose another place or free some space") from error


def _end_of_whole_lines(file) -> int:
    """Return the offset just after the last newline of an open binary file."""
    position = file.seek(0, os.SEEK_END)
    while position > 0:
        start = max(0, position - 65536)
        file.seek(start)
        newline = file.read(position - start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        position = start
    return 0


def reason(error: OSError) -> str:
    """The operating system's words for an error, in lower case."""
    return (error.strerror or str(error)).lower()
