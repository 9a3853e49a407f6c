import os
import subprocess
import sys

import pytest

from graphzoo.system.openmp import shorten_waits


@pytest.fixture
def environment(monkeypatch):
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    return monkeypatch


def test_waits_are_shortened(environment):
    shorten_waits()
    assert os.environ["GOMP_SPINCOUNT"] == "1000"


def test_a_given_environment_is_changed_in_place_of_this_one(environment):
    other = {"PATH": "/bin"}
    shorten_waits(other)
    assert other == {"PATH": "/bin", "GOMP_SPINCOUNT": "1000"} and "GOMP_SPINCOUNT" not in os.environ


@pytest.mark.parametrize(("name", "value"), [("OMP_WAIT_POLICY", "ACTIVE"), ("GOMP_SPINCOUNT", "7")])
def test_variables_of_the_user_are_kept(environment, name, value):
    environment.setenv(name, value)
    shorten_waits()
    found = {key: os.environ.get(key) for key in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
    assert found == {"OMP_WAIT_POLICY": None, "GOMP_SPINCOUNT": None} | {name: value}


def test_the_command_sets_the_variable_before_it_imports_torch(environment):
    code = """
import os, sys
from graphzoo.cli import commands as cli
cli.main(["version"])
assert os.environ["GOMP_SPINCOUNT"] == "1000" and "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
