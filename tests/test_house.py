"""The structure of the project: which package may import which, and which files must say the same."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
FILES = sorted((ROOT / "dclib").rglob("*.py"))
MODULES = {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in FILES}
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


# each package, from the ground up, and the packages that it may import
MAY = {
    "errors": "",
    "support": "errors",
    "spec": "errors support",
    "data": "errors support spec",
    "core": "errors support spec data",
    "methods": "errors support spec data core",
    "experiments": "errors support spec",
    "results": "errors support spec core experiments",
    "run": "errors support spec data core methods experiments results",
    "report": "errors support spec experiments results",
    "api": "errors support spec data core methods experiments results run",
    "reproduce": "errors support spec data experiments results run report",
    "cli": "errors support spec data core methods experiments results run report api reproduce",
    "__main__": "cli",
    "__init__": "",
}
LIGHT = ("errors", "support", "spec", "experiments", "results", "report", "api", "reproduce", "cli")  # load no torch when imported
# modules that compute when they are asked to, or ask where data are
ASKED = {"dclib.experiments.work", "dclib.run.callbacks"}


def package(module: str) -> str:
    """The package of a module of dclib, or the module that stands alone."""
    return module.split(".")[1] if "." in module else "__init__"


@cache
def imports(module: str) -> set[str]:
    """The modules and packages of dclib that a module imports, at its top or inside a function, but not for types alone."""
    found, tree = set(), ast.parse(MODULES[module].read_text())
    for block in [node for node in ast.walk(tree) if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]:
        block.body = []
    home = module if MODULES[module].name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = home.split(".")[: 1 - node.level or None] if node.level else []
            source = ".".join([*above, *filter(None, [node.module])])
            names = {f"{source}.{a.name}" for a in node.names}
            found |= (names & MODULES.keys()) | ({source} if names - MODULES.keys() else set())
    return found & MODULES.keys()


def test_packages_import_only_those_below():
    assert {package(m) for m in MODULES} == MAY.keys()
    bad = []
    for module in MODULES.keys() - ASKED:
        allowed = {package(module), *MAY[package(module)].split()}
        bad += [f"{module} imports {other}" for other in imports(module) if package(other) not in allowed]
    assert not bad


def test_no_circle():
    left = {module: imports(module) for module in MODULES}
    while free := [m for m, to in left.items() if not to & left.keys()]:
        for m in free:
            del left[m]
    assert not left, f"these modules import one another: {sorted(left)}"


def test_torch_is_not_loaded_before_it_is_needed():
    names = ["dclib", *(m for m in MODULES if package(m) in LIGHT)]
    code = f"import sys\nfor m in {names!r}:\n    __import__(m)\n    assert 'torch' not in sys.modules, m\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert done.returncode == 0, done.stderr.strip().splitlines()[-1]


def test_results_in_git_stay_under_19_megabytes():
    assert sum(p.stat().st_size for p in Path(os.environ["DCLIB_RESULTS"]).rglob("*") if p.is_file()) <= 19 * 2**20


# --- files that must say the same


def test_the_book_has_every_notebook_and_no_missing_page():
    pages = re.findall(r"^\s*(?:- file|root): (\S+)$", (ROOT / "_toc.yml").read_text(), re.M)
    missing = [p for p in pages if not list((ROOT / p).parent.glob(Path(p).name + ".*"))]
    assert not missing
    assert {f"notebooks/{p.stem}" for p in NOTEBOOKS} <= set(pages)


@cache
def constraints() -> dict[str, str]:
    """The pinned version of every package."""
    lines = [line.partition("#")[0].strip() for line in (ROOT / "constraints.txt").read_text().splitlines()]
    pairs = [line.partition("==") for line in lines if line]
    assert all(sep for _, sep, _ in pairs), "every line of constraints.txt is NAME==VERSION"
    return {canonicalize_name(package): version for package, _, version in pairs}


def required() -> list[Requirement]:
    """What pyproject.toml asks for, extras included."""
    project = PROJECT["project"]
    lines = [*project["dependencies"], *(line for extra in project["optional-dependencies"].values() for line in extra)]
    return [r for r in map(Requirement, lines) if r.name != project["name"]]


def test_every_requirement_is_pinned_to_a_version_it_admits():
    pinned = constraints()
    assert not [r.name for r in required() if canonicalize_name(r.name) not in pinned]
    assert not [str(r) for r in required() if pinned[canonicalize_name(r.name)] not in r.specifier]


def test_environment_yml_installs_the_package_with_extras_that_exist():
    text = (ROOT / "environment.yml").read_text()
    extras = re.search(r"-e \.\[(.+)\]", text)[1].split(",")
    assert set(extras) <= set(PROJECT["project"]["optional-dependencies"])
    assert "-c constraints.txt" in text
    assert re.search(r"python=(\S+)", text)[1] in SpecifierSet(PROJECT["project"]["requires-python"])


def test_every_place_names_the_same_pythons():
    assert PROJECT["project"]["requires-python"] == ">=3.11,<3.14"
    assert "(3, 11) <= sys.version_info < (3, 14)" in (ROOT / "Makefile").read_text()
    for document in ("README.md", "book/reproducing.md"):
        assert "Python 3.11 to 3.13" in (ROOT / document).read_text()
    for workflow in sorted((ROOT / ".github/workflows").glob("*.yml")):
        found = re.findall(r"python(?:-version)?: (\[.+\]|\"[\d.]+\")", workflow.read_text())
        assert found, workflow.name
        versions = re.findall(r"\d+\.\d+", " ".join(found))
        assert all(v in SpecifierSet(PROJECT["project"]["requires-python"]) for v in versions)


def test_the_map_names_only_what_exists():
    named = re.findall(r"`((?:dclib\.)?[a-z]+\.[\w.]+)`", (ROOT / "book/map.md").read_text())
    assert len(named) > 50
    packages = {module.removesuffix(".__init__"): path for module, path in MODULES.items()}
    missing = []
    for name in named:
        parts = ["dclib", *name.removeprefix("dclib.").split(".")]
        depth = max(n for n in range(1, len(parts) + 1) if ".".join(parts[:n]) in packages)
        text = packages[".".join(parts[:depth])].read_text()
        missing += [name] if depth == 1 or not all(re.search(rf"\b{part}\b", text) for part in parts[depth : depth + 1]) else []
    assert not missing


def test_documents_name_only_make_targets_that_exist():
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.search(r"^\.PHONY: (.+)$", makefile, re.M)[1].split())
    assert all(re.search(rf"^{t}:", makefile, re.M) for t in targets)
    for document in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "book").glob("*.md"))]:
        text = document.read_text()
        named = re.findall(r"`make ([\w-]+)", text) + re.findall(r"^make ([\w-]+)", text, re.M)
        assert set(named) <= targets, document.name


def test_documents_name_only_commands_that_exist():
    from typer.main import get_command

    from dclib.cli.main import app

    commands = set(get_command(app).commands)
    for document in (ROOT / "README.md", ROOT / "book/reproducing.md"):
        named = re.findall(r"^dclib (\w+)", document.read_text(), re.M)
        assert named
        assert set(named) <= commands, document.name


def test_the_page_on_the_library_has_every_public_name():
    import dclib

    documented = re.findall(r"^\.\. auto\w+:: dclib\.(\w+)$", (ROOT / "book/api.md").read_text(), re.M)
    assert sorted(documented) == dclib.__all__
