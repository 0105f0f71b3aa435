"""What the command reads and prints: errors as one sentence on stderr, tables in columns, durations, lists of words."""

import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean, pstdev
from typing import Any

import typer

from ..errors import DclibError, Interrupted, SpecError, first_line

UsageError = typer.BadParameter.__base__  # typer's versions have it in different places
NO_MEMORY = "out of memory", "allocate memory", "alloc_failed"  # as PyTorch, the system and CUDA's libraries say it
UNITS = {"s": 1, "m": 60, "h": 3600}


def guarded(command: Callable[..., int | None], *given: Any, **options: Any) -> int:
    """Call `command` with what is given and return the exit status; an error is one sentence on stderr, never a traceback.

    Returns:
        What `command` returns, else 1 for an error, 2 for a command line that cannot be understood, 130 for a stopped command.
    """
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *where, **more: say(f"warning: {message}")
            status = command(*given, **options)
            sys.stdout.flush()
            return status or 0
    except BrokenPipeError:  # whoever read the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130
    except DclibError as error:
        say(str(error))
        return 130 if isinstance(error, Interrupted) else 1
    except UsageError as error:
        text = " ".join(error.format_message().split()).rstrip(".")
        if wrong := getattr(error.__cause__, "errors", None):  # pydantic's, which typer tells without the value
            text = text.replace("value for", f"value {wrong()[0]['input']!r} for", 1)
        say(f"{text[:1].lower()}{text[1:]} (`{error.ctx.command_path if error.ctx else 'dclib'} --help` explains it)")
        return 2
    except Exception as error:
        said = first_line(error, "no message")
        if isinstance(error, MemoryError) or any(words in str(error).lower() for words in NO_MEMORY):
            say(f"not enough memory ({said}): choose fewer images, a smaller batch or network, or another device")
        elif os.environ.get("DCLIB_DEBUG"):
            raise
        else:
            say(f"unexpected {type(error).__name__} ({said}): DCLIB_DEBUG=1 shows where")
        return 1


def say(sentence: str) -> None:
    """Write one line to stderr."""
    print(f"dclib: {sentence}", file=sys.stderr, flush=True)


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Set rows in columns, two spaces apart; columns of whole numbers to the right."""
    from tabulate import tabulate

    rows = list(rows)
    right = [all(isinstance(value, int) for value in column) for column in zip(*rows, strict=True)]
    texts = [[f"{value:,}" if isinstance(value, int) else str(value) for value in row] for row in rows]
    align = ["right" if number else "left" for number in right] if rows else None
    text = tabulate(texts, header, tablefmt="plain", disable_numparse=True, colalign=align)
    return "\n".join(line.rstrip() for line in text.splitlines())


def seconds(text: str) -> float:
    """Read a duration such as 90s, 8m or 2h.

    Raises:
        SpecError: it is none.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text.strip())
    if not found or not float(found[1]):
        raise SpecError(f"{text!r} is no duration: write it as 90s, 8m or 2h")
    return float(found[1]) * UNITS[found[2]]


def words(values: Sequence[str] | None) -> list[str] | None:
    """Split an option that may be repeated, or hold several values with spaces or commas between; None if it was not given.

    A network with options, or a variant, has commas of its own: a value with : or = is split at spaces only.
    """
    return [word for v in values for word in (v if ":" in v or "=" in v else v.replace(",", " ")).split()] if values else None


def summary(accuracies: Sequence[float]) -> str:
    """Mean ± standard deviation (of the population) of accuracies in percent, and each of them."""
    every = ", ".join(f"{a:.2f}" for a in accuracies)
    return f"{fmean(accuracies):.2f} ± {pstdev(accuracies):.2f} % ({every})" if len(accuracies) > 1 else f"{every} %"
