"""A process that waits for another one says so."""

import signal
import subprocess
import sys

import pytest
import torch
from filelock import Timeout

from graphzoo.datasets.files import fetch
from graphzoo.errors import DownloadError
from graphzoo.ops import tensor_file as tensor_file_module
from graphzoo.ops.tensor_file import TensorFile
from graphzoo.system import waiting

HOLDER = """
import sys, time
from filelock import FileLock
with FileLock(sys.argv[1]):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def holder(tmp_path):
    """A process that holds the lock `one.lock`."""
    child = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path / "one.lock")], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout.readline() == "held\n"
    yield child
    child.kill()
    child.communicate()


@pytest.mark.fault(
    "the process that other processes wait for is suspended",
    "after five seconds they name the process and the lock, and say that it is suspended",
)
def test_waiting_for_a_stopped_process_is_reported(holder, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(waiting, "NOTICE", 0.05)
    lock = waiting.TellingLock(tmp_path / "one.lock", timeout=0.2)
    with pytest.raises(Timeout):
        lock.acquire()
    said = capfd.readouterr().err
    assert said.count("\n") == 1 and f"process {holder.pid}, which has the lock" in said
    assert str(tmp_path / "one.lock") in said and ", stopped" not in said
    holder.send_signal(signal.SIGSTOP)
    while "stopped" not in open(f"/proc/{holder.pid}/status").read():
        pass
    monkeypatch.setattr(fetch, "_LOCK_TIMEOUT", 0.2)
    with pytest.raises(DownloadError, match="has held this lock"), fetch.locked(tmp_path / "one.lock"):
        raise AssertionError("two processes hold the lock")
    assert f"process {holder.pid}, stopped (kill -CONT {holder.pid}" in capfd.readouterr().err


def test_waiting_for_a_result_of_another_process_is_reported(tmp_path, monkeypatch, capfd):
    path = tmp_path / "denoised.bin"
    file = TensorFile(path, "key", torch.Size([2, 2]), torch.float32, is_mapped=False)
    monkeypatch.setattr(waiting, "NOTICE", 0.05)
    monkeypatch.setattr(tensor_file_module, "_LOCK_TIMEOUT", 0.2)
    command = [sys.executable, "-c", HOLDER, f"{path}.lock"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout.readline() == "held\n"
        with pytest.raises(OSError):
            file.provide(lambda out: torch.ones(2, 2))
        child.kill()
    said = capfd.readouterr().err
    assert f"waits for process {child.pid}, which has the lock {path}.lock" in said
    assert file.provide(lambda out: torch.ones(2, 2)).sum() == 4


def test_a_free_lock_is_taken_silently(tmp_path, capfd):
    with waiting.TellingLock(tmp_path / "free.lock"), pytest.raises(Timeout):
        waiting.TellingLock(tmp_path / "free.lock").acquire(timeout=0)
    assert capfd.readouterr().err == ""
