"""The wheel, the source distribution, licence files, dependencies and the version."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

import graphzoo

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_container_installs_what_pyproject_asks_for():
    """Runs the commands that need no Docker, and compares names that are in both files."""
    text = (ROOT / "Dockerfile").read_text()
    command = re.search(r"sed -n '[^']*' pyproject.toml", text)[0]
    found = subprocess.run(["sh", "-c", command], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert found.stdout.strip() in PROJECT["dependencies"] and found.stdout.startswith("torch>=")
    entry = json.loads(re.search(r"^ENTRYPOINT (.*)$", text, re.MULTILINE)[1])
    assert entry == list(PROJECT["scripts"])
    python = re.search(r"^ARG PYTHON=(.*)$", text, re.MULTILINE)[1]
    assert f"Programming Language :: Python :: {python}" in PROJECT["classifiers"]
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert {".git", ".venv*", "runs"} <= set(ignored) and not {"configs", "README.md"} & set(ignored)


def test_the_conda_environment_has_the_versions_of_pyproject():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    conda = [name for name in environment["dependencies"] if isinstance(name, str)]
    torch = next(name for name in PROJECT["dependencies"] if name.startswith("torch>"))
    assert f"py{torch}" in conda and {"pip": ["."]} in environment["dependencies"]
    python = next(name.partition("=")[2] for name in conda if name.startswith("python="))
    assert f"Programming Language :: Python :: {python}" in PROJECT["classifiers"]


def test_extras_are_explained():
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    assert all(f"| `{extra}` |" in page for extra in PROJECT["optional-dependencies"])


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Wheel and sdist, built like a release but with the installed hatchling, since tests have no network."""
    pytest.importorskip("build")
    pytest.importorskip("hatchling")
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return next(out.glob("*.whl")), next(out.glob("*.tar.gz"))


@pytest.fixture(scope="module")
def wheel(built):
    with zipfile.ZipFile(built[0]) as archive:
        yield archive


@pytest.fixture(scope="module")
def sdist_names(built):
    with tarfile.open(built[1]) as archive:
        return {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}


def test_wheel_holds_every_preset(wheel):
    presets = {path.relative_to(ROOT).as_posix() for path in (ROOT / "configs").rglob("*.yaml")}
    assert len(presets) > 10
    assert {f"graphzoo/{name}" for name in presets} <= set(wheel.namelist())


def test_wheel_holds_every_module_type_marker_and_umls(wheel):
    names = set(wheel.namelist())
    modules = {path.relative_to(ROOT).as_posix() for path in (ROOT / "graphzoo").rglob("*.py")}
    assert modules <= names
    assert "graphzoo/py.typed" in names
    assert any(name.startswith("graphzoo/data/umls/") for name in names)


def test_wheel_holds_nothing_else(wheel):
    top = {name.split("/", 1)[0] for name in wheel.namelist()}
    assert top == {"graphzoo", f"graphzoo-{PROJECT['version']}.dist-info"}
    assert not [name for name in wheel.namelist() if "__pycache__" in name or name.endswith(".ckpt")]


def test_wheel_metadata(wheel):
    folder = f"graphzoo-{PROJECT['version']}.dist-info"
    metadata = wheel.read(f"{folder}/METADATA").decode()
    assert "License-Expression: Apache-2.0" in metadata
    assert "Requires-Python: >=3.11" in metadata
    assert "Provides-Extra: scatter" in metadata
    assert "graphzoo = graphzoo.cli:main" in wheel.read(f"{folder}/entry_points.txt").decode()
    for name in ("LICENSE", "NOTICE"):
        assert wheel.read(f"{folder}/licenses/{name}") == (ROOT / name).read_bytes()


def test_sdist_can_be_tested_and_built(sdist_names):
    for folder in ("tests", "docs", "configs", "graphzoo", ".ci"):
        files = [
            path for path in (ROOT / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts
        ]
        assert files
        assert {path.relative_to(ROOT).as_posix() for path in files} <= sdist_names
    assert {"Makefile", "README.md", "CHANGELOG.md", "CITATION.cff", "LICENSE", "NOTICE"} <= sdist_names
    assert not {name for name in sdist_names if name.startswith(("runs/", ".venv"))}


def test_one_version_everywhere():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    newest = re.search(r"^## \[(\d[^\]]*)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert graphzoo.__version__ == PROJECT["version"] == citation["version"] == newest[1]


def test_licence_is_the_declared_one():
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License" in text and "Version 2.0, January 2004" in text and len(text) > 11_000
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert PROJECT["license"] == citation["license"] == "Apache-2.0"


def test_every_dependency_says_why():
    """Each line of the dependencies has a comment: without a reason, nobody dares to loosen a pin."""
    text = (ROOT / "pyproject.toml").read_text()
    block = re.search(r"^dependencies = \[\n(.*?)^\]", text, re.MULTILINE | re.DOTALL)
    assert block is not None
    lines = block[1].splitlines()
    assert len(lines) == len(PROJECT["dependencies"])
    assert [line for line in lines if "  # " not in line] == []


def imported_packages(folder):
    """Distributions that the files of a folder import, except the standard library and this repository."""
    found = set()
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.split(".")[0])
    own = {"graphzoo", "benchmarks", "tests", "helpers"} | {
        path.stem for path in (ROOT / "tests").rglob("*.py")
    }
    name = {
        "docstring_parser": "docstring-parser",
        "sklearn": "scikit-learn",
        "torch_geometric": "torch-geometric",
        "torch_scatter": "torch-scatter",
        "wandb_workspaces": "wandb-workspaces",
        "PIL": "pillow",
        "yaml": "pyyaml",
    }
    return {name.get(package, package) for package in found - sys.stdlib_module_names - own}


def names_of(requirements):
    return {re.match(r"[\w-]+", line)[0] for line in requirements}


def test_declared_dependencies_are_those_imported():
    """Imports must not rely on another package's dependencies."""
    # triton comes with torch where it can be used; the others are used if they are installed.
    optional = {"triton", "tensorboard", "torch-scatter", "wandb-workspaces", "huggingface_hub", "mlflow"}
    assert imported_packages(ROOT / "graphzoo") - optional == imported_packages(ROOT / "graphzoo") & names_of(
        PROJECT["dependencies"]
    )


def test_declared_extras_are_those_the_tests_import():
    extras = PROJECT["optional-dependencies"]
    declared = names_of(PROJECT["dependencies"]) | set().union(*map(names_of, extras.values()))
    imported = imported_packages(ROOT / "tests") | imported_packages(ROOT / "benchmarks")
    # mlflow-skinny provides mlflow
    assert imported - declared - {"mlflow"} == set()


def test_tracked_files_name_no_private_folder():
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip("not a git checkout")
    private = re.compile(r"(?<![\w.])/(?:root|home|Users|work|mnt)/\w")
    found = []
    for name in done.stdout.splitlines():
        path = ROOT / name
        if path.suffix in {".npz", ".gz", ".pt", ".png", ".parquet"} or not path.is_file():
            continue
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            if private.search(line):
                found.append(f"{name}:{number}: {line.strip()[:100]}")
    assert found == []


def test_two_modules_import_a_higher_package_by_name():
    """The import contract does not see packages imported by name."""
    named = {
        (str(file.relative_to(ROOT)), folder)
        for file in (ROOT / "graphzoo").rglob("*.py")
        for folder in re.findall(r'import_module\(f?"graphzoo\.(\w+)', file.read_text(encoding="utf-8"))
        if file.relative_to(ROOT).parts[1] != folder
    }
    above = {"graphzoo/inference/trained.py", "graphzoo/callbacks/wandb_run.py"}
    assert named == {(file, "report") for file in above}
