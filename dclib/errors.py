"""What can go wrong through no fault of dclib: each error is one sentence that says what, with which value, and what to do."""


class DclibError(Exception):
    """Base of every error that a user can cause; the command line prints its sentence and exits with status 1."""

    def _render_traceback_(self) -> list[str]:
        """What IPython prints in place of a traceback: in a notebook, too, the sentence is all."""
        return [f"{type(self).__name__}: {self}"]


class SpecError(DclibError, ValueError):
    """A network, option, preset or hyper-parameter that does not exist or is out of range."""


class DataError(DclibError, ValueError):
    """A data set that cannot be found, read or used."""


class FileError(DclibError, OSError):
    """A file of dclib's own (condensed set, checkpoint, record) that cannot be read or written."""


class Diverged(DclibError, ArithmeticError):
    """A computation left the finite numbers; its hyper-parameters ask for too much."""


class ClusterError(DclibError, ConnectionError):
    """A Dask cluster that cannot be reached, or cannot do the work."""


class Interrupted(DclibError):
    """A long computation was stopped (Ctrl-C, SIGTERM or its time limit) after saving what it had."""


def first_line(error: BaseException, otherwise: str = "") -> str:
    """The first line of what an error says; where it says nothing `otherwise`, or the error's kind."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else otherwise or type(error).__name__


def one_of(what: str, value: object, valid) -> object:
    """Return `value` if it is among `valid`, else raise `SpecError` with the list and the closest match."""
    from difflib import get_close_matches

    names = [str(v) for v in valid]
    if str(value) in names:
        return value
    close = get_close_matches(str(value), names, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    raise SpecError(f"unknown {what} {str(value)!r}: {hint}choose one of {', '.join(names)}")
