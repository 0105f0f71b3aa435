"""What the tests of several modules need."""

import re
from collections.abc import Callable

import pytest
import torch

from dclib.core.resume import Work
from dclib.errors import DclibError


def refused(*parts, call, error=DclibError, **given) -> str:
    """Check that the call is refused with one sentence that names `parts`; return the sentence."""
    with pytest.raises(error) as caught:
        call(**given)
    text = str(caught.value)
    assert "\n" not in text
    assert not re.search(r"\. [A-Z]|\.$", text), f"more than one sentence: {text}"
    for part in parts:
        assert str(part) in text, f"{part!r} is not named in: {text}"
    return text


def stop_after(steps: int) -> Callable[[], bool]:
    """A `should_stop` that is asked so often before it says yes."""
    calls = iter([False] * steps)
    return lambda: next(calls, True)


def same(one: Work, other: Work) -> bool:
    """Whether two pieces of work hold the same bits and have the same past."""
    mine, theirs = one.tensors(), other.tensors()
    alike = [torch.equal(t.nan_to_num(-1), theirs[name].nan_to_num(-1)) for name, t in mine.items()]
    return mine.keys() == theirs.keys() and all(alike) and all(getattr(one, n) == getattr(other, n) for n in ("k", *one.kept))


def assert_close(ours: torch.nn.Module, theirs: torch.nn.Module, rtol: float, atol: float) -> None:
    """Check that two networks have nearly the same weights."""
    torch.testing.assert_close(list(ours.parameters()), list(theirs.parameters()), rtol=rtol, atol=atol)
