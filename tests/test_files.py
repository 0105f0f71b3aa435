"""Files: whole or not at all, whatever fails in between, and whoever else is writing."""

import errno
import json
import os
import subprocess
import sys
from functools import partial

import pytest
from helpers import refused
from hypothesis import given, settings
from hypothesis import strategies as st

from dclib.errors import FileError
from dclib.support import files
from dclib.support.files import append_line, check_writable, write_atomic

quick = settings(max_examples=15, deadline=None, derandomize=True)
records = st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=20), max_size=3).map(json.dumps)
unwritten = partial(refused, call=write_atomic, error=FileError)
DISK_FULL = OSError(errno.ENOSPC, "No space left on device")


def listed(folder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.mark.parametrize("step", ["tempfile.mkstemp", "os.fdopen", "os.fsync", "os.chmod", "os.replace"])
@pytest.mark.parametrize("error", [DISK_FULL, KeyboardInterrupt()])
def test_a_failure_at_any_step_leaves_the_old_file_alone(tmp_path, monkeypatch, step, error):
    def fail(*_, **__):
        raise error

    write_atomic(tmp_path / "file", b"older")
    write_atomic(tmp_path / "file", b"old")
    module, name = step.split(".")
    monkeypatch.setattr(getattr(files, module), name, fail)
    if isinstance(error, KeyboardInterrupt):
        with pytest.raises(KeyboardInterrupt):
            write_atomic(tmp_path / "file", b"new")
    else:
        unwritten(tmp_path / "file", error.strerror.lower(), path=tmp_path / "file", content=b"new")
    assert listed(tmp_path) == {"file": b"old"}


def limited(code: str, folder) -> str:
    """What a process says that may write no file of more than 1,000 bytes, as if the disk were full."""
    prelude = "import resource\nfrom dclib.support.files import *\nresource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
    done = subprocess.run([sys.executable, "-c", prelude + code], capture_output=True, text=True, cwd=folder, timeout=60)
    assert done.returncode == 1
    return done.stderr


def test_what_does_not_fit_leaves_no_part_of_itself(tmp_path):
    (tmp_path / "file").write_bytes(b"old")
    assert "FileError: cannot write file: file too large" in limited("write_atomic('file', b'x' * 5000)", tmp_path)
    lines = b'{"a": 1}\n' * 100  # 900 of 1,000 bytes: what is left takes a part of the line
    (tmp_path / "lines").write_bytes(lines)
    assert "FileError: cannot append to lines: file too large" in limited("append_line('lines', '{' + 'x' * 150)", tmp_path)
    assert listed(tmp_path) == {"file": b"old", "lines": lines}


@pytest.mark.parametrize("call", [write_atomic, check_writable])
def test_places_that_cannot_be_written(tmp_path, call):
    (tmp_path / "file").write_bytes(b"old")
    content = {"content": b"new"} if call is write_atomic else {}
    unwritten(tmp_path / "file", "not a folder", call=call, path=tmp_path / "file" / "below", **content)
    unwritten("not a directory", call=call, path=tmp_path / "file" / "far" / "below", **content)
    unwritten("it is a folder", call=call, path=tmp_path, **content)
    unwritten("no regular file", call=call, path="/dev/null", **content)
    unwritten("file name too long", call=call, path=tmp_path / ("x" * 300), **content)
    call(path=tmp_path / "new" / "file", **content)
    assert listed(tmp_path) == {"file": b"old"}
    assert listed(tmp_path / "new") == ({"file": b"new"} if content else {})


@quick
@given(st.lists(records, min_size=1, max_size=6), st.data())
def test_a_torn_last_line_is_cut_off_and_nothing_else(tmp_path_factory, lines, data):
    path = tmp_path_factory.mktemp("appended") / "lines"
    for line in lines:
        append_line(path, line)
    whole = path.read_bytes()
    assert whole.decode() == "".join(f"{line}\n" for line in lines)
    torn = data.draw(st.integers(0, len(lines[-1].encode())), label="bytes of the last line that were written")
    path.write_bytes(whole[: len(whole) - len(lines[-1].encode()) - 1 + torn])
    append_line(path, "{}")
    kept = lines if torn == len(lines[-1].encode()) else lines[:-1]  # only its newline may be missing
    assert path.read_text() == "".join(f"{line}\n" for line in [*kept, "{}"])


def test_a_line_that_cannot_be_kept_is_taken_back(tmp_path, monkeypatch):
    def fail(*_):
        raise KeyboardInterrupt

    append_line(tmp_path / "lines", "{}")
    monkeypatch.setattr(files.os, "fsync", fail)
    with pytest.raises(KeyboardInterrupt):
        append_line(tmp_path / "lines", '{"lost": 1}')
    monkeypatch.undo()
    assert (tmp_path / "lines").read_bytes() == b"{}\n"
    unwritten("is a directory", call=append_line, path=tmp_path, line="{}")
    unwritten("not a folder", call=append_line, path=tmp_path / "lines" / "below", line="{}")


def test_lines_of_several_processes_do_not_mix(tmp_path):
    code = "import sys\nfrom dclib.support.files import append_line\n"
    code += "for i in range(50): append_line('lines', sys.argv[1] * (1 + i * 37))"
    writers = [subprocess.Popen([sys.executable, "-c", code, digit], cwd=tmp_path) for digit in "123"]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    lines = (tmp_path / "lines").read_text().splitlines()
    assert sorted(lines) == sorted(digit * (1 + i * 37) for digit in "123" for i in range(50))
    assert os.listdir(tmp_path) == ["lines"]
