"""The source of a user's own network: a factory in Python, or a class or function of a file, told apart by a hash of its text.

Nothing here imports torch; `architectures.OwnNetwork` stands for such a network in a run, and `trial` builds it.
"""

import hashlib
import importlib.util
import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import SpecError, first_line

SUFFIX = ".py:"  # tells a place, FILE.py:NAME, from a family's name


def code(source: str) -> str:
    """Eight hexadecimal digits that change with the text."""
    return hashlib.sha256(source.encode()).hexdigest()[:8]


def code_of(factory: Any) -> str:
    """The code of a class's or function's source; empty where Python cannot find it.

    Raises:
        SpecError: it cannot be called.
    """
    if not callable(factory):
        raise SpecError(f"{factory!r} is no network: give a class or function that takes channels, classes and size")
    try:
        return code(inspect.getsource(factory))
    except (OSError, TypeError):
        return ""


@dataclass(frozen=True)
class FromFile:
    """A factory that is looked up in a file when it is first called, in this process or another.

    Args:
        path: the file, in full.
        name: of a class or function in it.
    """

    path: Path
    name: str

    @classmethod
    def parse(cls, text: str) -> "FromFile":
        """Read FILE.py:NAME.

        Raises:
            SpecError: it names nothing.
        """
        place, _, name = text.rpartition(SUFFIX)
        if not place or not name.isidentifier():
            raise SpecError(f"{text!r} names no network of your own: write it as FILE.py:NAME")
        return cls(Path(f"{place}.py").resolve(), name)

    def code(self) -> str:
        """The code of the file as it is now.

        Raises:
            SpecError: it cannot be read.
        """
        try:
            return code(self.path.read_text())
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or first_line(error)
            raise SpecError(f"cannot read {self.path} ({why}): give the file of your own network as FILE.py:NAME") from None

    def __call__(self, **shape: Any) -> Any:
        """Execute the file and build one.

        Raises:
            SpecError: the file cannot be executed, or has no such name.
        """
        spec = importlib.util.spec_from_file_location(f"dclib_own_{code(str(self.path))}", self.path)
        try:
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        except Exception as error:  # whatever the user's own file raises
            raise SpecError(f"{self.path} cannot be executed ({type(error).__name__}: {first_line(error)}): repair it") from error
        if not callable(getattr(module, self.name, None)):
            raise SpecError(f"{self.path} has no class or function {self.name!r}: write its name as it stands there")
        return getattr(module, self.name)(**shape)
