"""The command `dclib`: condense · train · test · judge · show · select · export · import · run · verify · status · merge · data.

Results go to stdout, progress to stderr; an error is one sentence on stderr and a non-zero exit status.
"""

import sys

import typer

from ..errors import SpecError
from ..support.console import guarded
from ..support.provenance import launched
from . import on_records, on_sets

app = typer.Typer(
    help="Dataset condensation with gradient matching: learn a few images that train a network almost as the whole data set does.",
    epilog="A data set is a name (`dclib data` lists them), an .npz file, or a folder with train/<class>/ and test/<class>/.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
COMMANDS = (
    *(on_sets.condense, on_sets.train, on_sets.test, on_sets.judge, on_sets.show, on_sets.select, on_sets.export, on_sets.import_),
    *(on_records.run, on_records.verify, on_records.status, on_records.merge, on_records.data),
)
Context = typer.Context.__base__  # typer passes an instance of this one
for command in COMMANDS:
    name = command.__name__.rstrip("_")
    app.command(name, epilog=(on_sets.EXAMPLES | on_records.EXAMPLES).get(name))(command)


@app.callback()
def check_processes(context: Context) -> None:
    """Refuse several processes, started by `torchrun`, for a command that is for one; `run` has a sentence of its own."""
    if launched() > 1 and context.invoked_subcommand not in ("condense", "run"):
        raise SpecError(f"torchrun has started `dclib {context.invoked_subcommand}` {launched()} times: it is for one process")


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit status."""
    arguments = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    return guarded(typer.main.get_command(app), arguments, prog_name="dclib", standalone_mode=False)
