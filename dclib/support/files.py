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

PICTURES = ("png", "jpg", "pdf", "svg")  # the endings that a picture may have


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
    """Try, before long work, whether `path` can be written; what is there stays as it is.

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


def check_output(output: Path) -> None:
    """Refuse, before long work, a place that a set cannot be written to, or that its picture would replace it in.

    Raises:
        FileError: it cannot be written, or has the name of a picture.
    """
    if output.suffix.lower().removeprefix(".") in PICTURES:
        raise FileError(f"{output} is named as a picture and a set is none: name it {output.with_suffix('.safetensors')}")
    check_writable(output)


def check_apart(file: Path, output: Path) -> None:
    """Refuse to write over the set that is read.

    Raises:
        FileError: both are one file.
    """
    if output.resolve() == file.resolve():
        raise FileError(f"{file} is the set itself: name the place to write to with -o")


def _make_room(path: Path) -> None:
    """Make the folder of a file to be written; a folder or device in its place is not to be replaced."""
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
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "ab+", buffering=0) as file:  # no buffer that would be written after a failure, when the file is closed
            fcntl.flock(file, fcntl.LOCK_EX)
            end, start = _end_of_whole_lines(file)
            file.truncate(end)
            try:
                _write_all(file, start + line.encode() + b"\n")
                os.fsync(file.fileno())
            except BaseException:
                file.truncate(end)
                raise
    except OSError as error:
        raise _unwritable("append to", path, error) from error


def _write_all(file: FileIO, content: bytes) -> None:
    while content:
        content = content[file.write(content) :]


def _end_of_whole_lines(file: FileIO) -> tuple[int, bytes]:
    """Return where the next line goes, and what must come before it: a newline, if the last line is whole but lacks one."""
    position = end = file.seek(0, os.SEEK_END)
    tail = b""
    while position > 0 and b"\n" not in tail:
        position = max(0, position - 65536)
        file.seek(position)
        tail = file.read(end - position)
    tail = tail.rpartition(b"\n")[2]
    return (end, b"\n") if is_json(tail) else (end - len(tail), b"")


def is_json(line: bytes) -> bool:
    """Whether a line is a whole JSON text: of a torn record, no part is."""
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
