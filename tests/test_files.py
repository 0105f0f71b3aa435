"""Files: whole or not at all, whatever fails in between, and whoever else is writing."""

import errno
import json
import os
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dclib.errors import FileError
from dclib.support import files
from dclib.support.files import append_line, check_writable, checksum, write_atomic

quick = settings(max_examples=40, deadline=None, derandomize=True)
records = st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=20), max_size=3).map(json.dumps)


def refused(*parts, call=write_atomic, **given):
    """Check that the call is refused with one sentence that names `parts`."""
    with pytest.raises(FileError) as caught:
        call(**given)
    text = str(caught.value)
    assert "\n" not in text
    for part in parts:
        assert str(part) in text, f"{part!r} is not named in: {text}"


def listed(folder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def failing(error):
    def call(*_, **__):
        raise error

    return call


DISK_FULL = OSError(errno.ENOSPC, "No space left on device")


# --- replacing a file


@quick
@given(st.lists(st.binary(max_size=200), min_size=1, max_size=3))
def test_the_last_content_is_there_and_nothing_else(tmp_path_factory, contents):
    folder = tmp_path_factory.mktemp("written")
    for content in contents:
        write_atomic(folder / "new" / "file", content)
    assert listed(folder / "new") == {"file": contents[-1]}


@pytest.mark.parametrize("step", ["tempfile.mkstemp", "os.fdopen", "os.fsync", "os.chmod", "os.replace"])
@pytest.mark.parametrize("error", [DISK_FULL, OSError(errno.EROFS, "Read-only file system"), KeyboardInterrupt()])
def test_a_failure_at_any_step_leaves_the_old_file_alone(tmp_path, monkeypatch, step, error):
    (tmp_path / "file").write_bytes(b"old")
    module, name = step.split(".")
    monkeypatch.setattr(getattr(files, module), name, failing(error))
    if isinstance(error, KeyboardInterrupt):
        with pytest.raises(KeyboardInterrupt):
            write_atomic(tmp_path / "file", b"new")
    else:
        refused(tmp_path / "file", error.strerror.lower(), path=tmp_path / "file", content=b"new")
    assert listed(tmp_path) == {"file": b"old"}


def test_a_failing_write_leaves_the_old_file_alone(tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(b"old")
    handle = os.open("/dev/full", os.O_WRONLY) if os.path.exists("/dev/full") else None
    if handle is None:
        pytest.skip("there is no /dev/full")
    real = os.fdopen

    def full(descriptor, mode):
        os.close(descriptor)
        return real(handle, mode)

    monkeypatch.setattr(files.os, "fdopen", full)
    refused("no space left", path=tmp_path / "file", content=b"new" * 10_000)
    monkeypatch.undo()
    assert listed(tmp_path) == {"file": b"old"}


@pytest.mark.parametrize("call", [write_atomic, check_writable])
def test_places_that_cannot_be_written(tmp_path, call):
    (tmp_path / "file").write_bytes(b"old")
    content = {"content": b"new"} if call is write_atomic else {}
    refused(tmp_path / "file", "not a folder", call=call, path=tmp_path / "file" / "below", **content)
    refused("not a directory", call=call, path=tmp_path / "file" / "far" / "below", **content)
    refused("it is a folder", call=call, path=tmp_path, **content)
    refused("no regular file", call=call, path="/dev/null", **content)
    refused("file name too long", call=call, path=tmp_path / ("x" * 300), **content)
    assert listed(tmp_path) == {"file": b"old"}
    assert not os.path.isfile("/dev/null")


def test_asking_whether_a_place_can_be_written_changes_no_file(tmp_path):
    (tmp_path / "file").write_bytes(b"old")
    check_writable(tmp_path / "file")
    check_writable(tmp_path / "new" / "file")
    assert listed(tmp_path) == {"file": b"old"}
    assert listed(tmp_path / "new") == {}


# --- appending a line


@quick
@given(st.lists(records, min_size=1, max_size=6), st.data())
def test_a_torn_last_line_is_cut_off_and_nothing_else(tmp_path_factory, lines, data):
    path = tmp_path_factory.mktemp("appended") / "lines"
    for line in lines:
        append_line(path, line)
    assert path.read_text() == "".join(f"{line}\n" for line in lines)
    torn = data.draw(st.integers(0, len(lines[-1].encode()) - 1), label="bytes of the last line that were written")
    path.write_bytes(path.read_bytes()[: -len(lines[-1].encode()) - 1 + torn])
    append_line(path, "{}")
    assert path.read_text() == "".join(f"{line}\n" for line in [*lines[:-1], "{}"])


def test_a_last_line_that_only_lacks_its_newline_is_kept(tmp_path):
    (tmp_path / "lines").write_text('{"a": 1}\n{"b": 2}')
    append_line(tmp_path / "lines", '{"c": 3}')
    assert (tmp_path / "lines").read_text() == '{"a": 1}\n{"b": 2}\n{"c": 3}\n'


@pytest.mark.parametrize("size", [10, 65_535, 65_536, 65_537, 200_000])
def test_a_long_torn_line_is_cut_off(tmp_path, size):
    (tmp_path / "lines").write_bytes(b"{}\n" + b'"' + b"x" * (size - 1))
    append_line(tmp_path / "lines", "[]")
    assert (tmp_path / "lines").read_bytes() == b"{}\n[]\n"


@pytest.mark.parametrize("error", [DISK_FULL, KeyboardInterrupt()])
def test_a_line_that_cannot_be_kept_is_taken_back(tmp_path, monkeypatch, error):
    append_line(tmp_path / "lines", "{}")
    monkeypatch.setattr(files.os, "fsync", failing(error))
    with pytest.raises(KeyboardInterrupt if isinstance(error, KeyboardInterrupt) else FileError):
        append_line(tmp_path / "lines", '{"lost": 1}')
    assert (tmp_path / "lines").read_bytes() == b"{}\n"


def test_lines_cannot_go_where_a_folder_or_a_file_is(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    refused("is a directory", call=append_line, path=tmp_path, line="{}")
    refused("not a folder", call=append_line, path=tmp_path / "file" / "lines", line="{}")


# --- a disk that is full, simulated by the system's limit on the size of a file


def limited(code: str, limit: int, folder) -> subprocess.CompletedProcess:
    prelude = "import resource\nfrom dclib.support.files import *\nfrom dclib.errors import FileError\n"
    text = f"{prelude}resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))\n{code}"
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, cwd=folder, timeout=60)


@pytest.mark.parametrize("length", [120, 150, 190, 400])
def test_a_line_that_does_not_fit_leaves_no_part_of_itself(tmp_path, length):
    before = b'{"a": 1}\n' * 100  # 900 of 1,000 bytes: what is left takes a part of the line
    (tmp_path / "lines").write_bytes(before)
    done = limited(f"append_line('lines', '{'x' * length}')", 1000, tmp_path)
    assert (tmp_path / "lines").read_bytes() == before
    assert done.returncode == 1
    assert "FileError: cannot append to lines: file too large" in done.stderr


def test_a_file_that_does_not_fit_leaves_the_old_one(tmp_path):
    (tmp_path / "file").write_bytes(b"old")
    done = limited("write_atomic('file', b'x' * 5000)", 1000, tmp_path)
    assert listed(tmp_path) == {"file": b"old"}
    assert "FileError: cannot write file: file too large" in done.stderr


# --- several writers


def test_lines_of_several_processes_do_not_mix(tmp_path):
    code = "import sys\nfrom dclib.support.files import append_line\n"
    code += "for i in range(50): append_line('lines', sys.argv[1] * (1 + i * 37))"
    writers = [subprocess.Popen([sys.executable, "-c", code, digit], cwd=tmp_path) for digit in "123"]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    lines = (tmp_path / "lines").read_text().splitlines()
    assert sorted(lines) == sorted(digit * (1 + i * 37) for digit in "123" for i in range(50))


@quick
@given(st.binary(min_size=1, max_size=50), st.data())
def test_the_checksum_sees_every_bit(content, data):
    bit = data.draw(st.integers(0, 8 * len(content) - 1))
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    assert checksum(bytes(changed)) != checksum(content)
    assert checksum(content[:3], content[3:]) == checksum(content)
