"""The files with which a run directory begins."""

import errno
from pathlib import Path

import pytest

from graphzoo.errors import UsageError
from graphzoo.runs import directory
from graphzoo.runs.directory import choose_run_directory, write_config


@pytest.mark.fault(
    "the disk is full when a run is resumed with other settings", "its config.yaml stays as it was"
)
@pytest.mark.parametrize("full", ["config.1.yaml", "config.yaml"])
def test_an_earlier_configuration_stays_until_the_new_one_is_written(monkeypatch, full):
    run = Path("run")
    write_config(run, "old: 1\n")
    write = directory.write_atomically

    def no_room(path, content):
        if path.name == full:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        write(path, content)

    with monkeypatch.context() as patch:
        patch.setattr(directory, "write_atomically", no_room)
        patch.setattr("graphzoo.system.files.write_atomically", no_room)
        with pytest.raises(OSError, match="No space left"):
            write_config(run, "new: 2\n")
    assert {path.name: path.read_text() for path in run.iterdir()} == {"config.yaml": "old: 1\n"}

    assert write_config(run, "new: 2\n") == (run / "config.yaml").absolute()
    assert write_config(run, "new: 2\n") is None
    kept = {"config.yaml": "new: 2\n", "config.1.yaml": "old: 1\n"}
    assert {path.name: path.read_text() for path in run.iterdir()} == kept


def test_a_name_that_means_a_variable_in_configurations_is_refused():
    with pytest.raises(UsageError, match="stands for a variable; give another name"):
        choose_run_directory("sgc", "cora", wanted=Path("runs/${x}"))
