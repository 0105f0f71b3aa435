"""Writing without ever leaving half a file: atomic replacement, and locked appending of lines."""

import fcntl
import json
import os
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import Any

from ..errors import FileError

PICTURES = ("png", "jpg", "pdf", "svg")  # the suffixes that a picture may have


def write_atomic(path: Path | str, content: bytes) -> None:
    """Write `content` to `path` so that a reader sees the old file or the new one, never a part.

    Raises:
        FileError: the folder cannot be made or written, or the disk is full; the old file is left as it was.
    """
    path = Path(path)
    temporary = None
    try:
        _make_room(path)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException as error:  # Ctrl-C, too
        if temporary:
            with suppress(OSError):
                os.unlink(temporary)
        if isinstance(error, OSError):
            raise _unwritable("write", path, error) from error
        raise


def check_writable(path: Path | str) -> None:
    """Check, before long work, that `path` can be written; what is there stays as it is.

    Raises:
        FileError: the folder cannot be made or written, or `path` is a folder or a device.
    """
    path = Path(path)
    try:
        _make_room(path)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}."):
            pass
    except OSError as error:
        raise _unwritable("write", path, error) from error


def _make_room(path: Path) -> None:
    """Make the folder of a file to be written, and refuse to replace a folder or a device."""
    if path.exists() and not path.is_file():
        raise OSError("it is a folder" if path.is_dir() else "it is no regular file")
    path.parent.mkdir(parents=True, exist_ok=True)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Let one process at a time work in a folder, which is made if it is not there.

    Raises:
        FileError: it cannot be made or opened.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY)
        fcntl.flock(handle, fcntl.LOCK_EX)
    except OSError as error:
        raise _unwritable("work in", folder, error) from error
    try:
        yield
    finally:
        os.close(handle)


def append_line(path: Path | str, line: str) -> None:
    """Append one line of JSON under a lock, after cutting off a torn last line that a killed process left.

    Raises:
        FileError: the file cannot be written, or the disk is full; what was in it stays.
    """
    path, content = Path(path), line.encode() + b"\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "ab+", buffering=0) as file:  # no buffer that would be written after a failure, when the file is closed
            fcntl.flock(file, fcntl.LOCK_EX)
            torn = _torn(file)
            end = file.seek(-len(torn), os.SEEK_END)
            if torn and is_json(torn):  # it only lacks its newline
                end, content = end + len(torn), b"\n" + content
            file.truncate(end)
            try:
                while content:
                    content = content[file.write(content) :]
                os.fsync(file.fileno())
            except BaseException:
                file.truncate(end)
                raise
    except OSError as error:
        raise _unwritable("append to", path, error) from error


def _torn(file: FileIO) -> bytes:
    """What follows the last newline; the whole file is read only if it does not end with one."""
    if not file.seek(0, os.SEEK_END):
        return b""
    file.seek(-1, os.SEEK_END)
    if file.read() == b"\n":
        return b""
    file.seek(0)
    return file.read().rpartition(b"\n")[2]


def is_json(line: bytes) -> bool:
    """Whether a line is a whole JSON text: no part of a record is."""
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def checksum(*parts: bytes | memoryview) -> str:
    """8 hexadecimal digits of the CRC-32 of all parts, to tell a damaged file."""
    crc = 0
    for part in parts:
        crc = zlib.crc32(part, crc)
    return f"{crc:08x}"


def array_checksum(text: str, *arrays: Any) -> str:
    """The checksum of a file's text and of its contiguous NumPy arrays, shapes included."""
    return checksum(text.encode(), *(part for a in arrays for part in (repr(a.shape).encode(), memoryview(a))))


def _unwritable(what: str, path: Path, error: OSError) -> FileError:
    return FileError(f"cannot {what} {path}: {reason(error)}; choose another place or free some space")


def reason(error: OSError) -> str:
    """The operating system's words for an error, in lower case."""
    if isinstance(error, FileExistsError):  # from mkdir
        return f"{error.filename} is a file, not a folder"
    return (error.strerror or str(error)).lower()
