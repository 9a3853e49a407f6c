"""The lock of a run directory, which lets one process write."""

import errno
import gc
import json
import os
import shutil
import subprocess
import sys
import weakref
from pathlib import Path

import pytest

from graphzoo.errors import UsageError
from graphzoo.runs import lock as run_lock
from graphzoo.runs.lock import LOCK, RunLock

HOLD = """
import sys, time
from pathlib import Path
from graphzoo.runs.lock import RunLock
lock = RunLock(Path(sys.argv[1]))
lock.take()
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holder():
    """`holder(run)` starts a process that holds the lock of a run until it is killed."""
    begun = []

    def hold(run):
        command = [sys.executable, "-c", HOLD, str(run)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        begun.append(process)
        assert process.stdout.readline() == "held\n"
        return process

    yield hold
    for process in begun:
        process.kill()
        process.communicate()


@pytest.mark.fault(
    "two processes resume one run at once",
    (
        "the second is refused; the message has process, host and start of the first, and how to "
        "resume if it is dead"
    ),
)
def test_a_second_writer_is_refused_and_the_first_one_named(trained, cli, holder):
    shutil.copytree(trained, "run")
    before = {path.name: path.read_bytes() for path in Path("run").glob("*.*")}
    process = holder("run")
    refused = cli("fit", "--ckpt_path", "run", "--trainer.max_epochs=3")
    assert refused.status == 2
    for part in (f"process {process.pid} on ", "since 2", f"rm {Path('run').absolute() / LOCK}", "--run_dir"):
        assert part in refused.err, refused.err
    Path("run", LOCK).rename("left-behind")
    assert {path.name: path.read_bytes() for path in Path("run").glob("*.*")} == before
    Path("left-behind").rename(Path("run", LOCK))
    process.kill()
    process.wait()
    assert Path("run", LOCK).is_file(), "a killed process leaves its file, not its lock"
    done = cli("fit", "--ckpt_path", "run", "--trainer.max_epochs=3")
    assert done.status == 0, done.err
    assert not Path("run", LOCK).exists()


def test_a_run_that_fails_leaves_no_lock_and_no_folder(fit):
    fit("--run_dir=new", "--trainer.callbacks+=helpers.own.BreakBegin", status=1)
    assert not Path("new").exists()


@pytest.fixture
def recorded(tmp_path):
    """`recorded(**changes)` leaves a lock file of this process, with these changes, and returns its lock."""

    def write(**changes):
        lock = RunLock(tmp_path)
        lock.take()
        record = json.loads(lock.path.read_text())
        lock.release()
        assert not lock.path.exists()
        lock.path.write_text(json.dumps({**record, **changes}))
        return lock

    return write


@pytest.mark.parametrize(
    ("kind", "options", "is_held"),
    [
        ("ext4", "rw", False),
        ("nfs4", "rw,vers=4.2", False),
        ("nfs", "rw,nolock", True),
        ("nfs", "rw,local_lock=all", True),
        ("lustre", "rw", True),
        ("lustre", "rw,flock", False),
        ("fuse.sshfs", "rw", True),
    ],
)
def test_a_lock_file_of_another_machine_holds_where_locks_are_local(
    recorded, tmp_path, monkeypatch, kind, options, is_held
):
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        f"1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 0:50 / {tmp_path} rw - {kind} server:/x {options}\n"
    )
    monkeypatch.setattr(run_lock, "_MOUNTS", mounts)
    lock = recorded(boot="of another machine", host="far-away", process=1)
    if is_held:
        with pytest.raises(UsageError, match="process 1 on far-away"):
            lock.take()
        lock.path.unlink()
    lock.take()
    lock.release()


@pytest.mark.parametrize(
    ("changes", "is_held"),
    [({}, True), ({"started": "1"}, False), ({"boot": "another"}, True), ({"process": 2**22 + 1}, False)],
)
def test_without_file_locks_the_process_in_the_lock_file_counts(recorded, monkeypatch, changes, is_held):
    """The lock file names this process, unless the start time or the process number is changed."""

    def refuse(*arguments):
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(run_lock.fcntl, "flock", refuse)
    lock = recorded(**changes)
    if is_held:
        with pytest.raises(UsageError, match="is being written by process"):
            lock.take()
    else:
        lock.take()
        lock.release()


RACE = """
import errno, os, sys, time
from pathlib import Path
from graphzoo.runs import lock as run_lock
from graphzoo.errors import UsageError

def refuse(*arguments):
    raise OSError(errno.ENOLCK, "no locks available")

def slow(call):
    def late(*arguments):
        found = call(*arguments)
        time.sleep(0.4)
        return found
    return late

def late_write(*arguments, write=os.pwrite):
    time.sleep(0.4)
    return write(*arguments)

run_lock.fcntl.flock = refuse
run_lock.os.pwrite = late_write
run_lock._may_live = slow(run_lock._may_live)
print("ready", flush=True)
sys.stdin.readline()
try:
    run_lock.RunLock(Path(sys.argv[1])).take()
    print("held", flush=True)
except UsageError as error:
    print(error, flush=True)
sys.stdin.read()
"""


@pytest.mark.fault(
    "two processes start one run at once on a file system without locks",
    "one starts, the other is refused",
)
@pytest.mark.parametrize("left", ["nothing", "of a dead process"])
def test_without_file_locks_one_of_two_gets_the_run(recorded, tmp_path, left):
    """Each process sleeps between reading and taking the lock, so that the other one reads meanwhile."""
    if left != "nothing":
        recorded(started="1")
    command = [sys.executable, "-c", RACE, str(tmp_path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    both = [subprocess.Popen(command, **pipes) for _ in range(2)]
    assert [process.stdout.readline() for process in both] == ["ready\n"] * 2
    for process in both:
        process.stdin.write("go\n")
        process.stdin.flush()
    printed = [process.stdout.readline() for process in both]
    for process in both:
        process.communicate()
    assert printed.count("held\n") == 1, printed
    holder = both[printed.index("held\n")]
    (refused,) = [line for line in printed if line != "held\n"]
    assert f"is being written by process {holder.pid} on " in refused
    assert [path.name for path in tmp_path.iterdir()] == [LOCK]


def test_the_file_of_a_process_that_died_while_removing_is_named(recorded, tmp_path, monkeypatch):
    def refuse(*arguments):
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(run_lock.fcntl, "flock", refuse)
    monkeypatch.setattr(run_lock, "_SECONDS_TO_WRITE", 0)
    lock = recorded(started="1")
    (tmp_path / f"{LOCK}.removing").touch()
    os.utime(tmp_path / f"{LOCK}.removing", (1, 1))
    with pytest.raises(UsageError, match="was left by a process that died\nRemove it: rm "):
        lock.take()


@pytest.mark.parametrize("text", ["", "{", "[1]", "null", '{"process": {"a": []}}', "\xff" * 9000])
def test_a_damaged_lock_file_holds_no_lock(tmp_path, text):
    (tmp_path / LOCK).write_text(text)
    lock = RunLock(tmp_path)
    lock.take()
    with pytest.raises(UsageError, match="is being written by process"):
        RunLock(tmp_path).take()
    lock.release()


def test_a_lock_file_may_vanish_while_it_is_read(tmp_path, monkeypatch):
    """Another process ends and removes its file between two system calls of this one."""
    (tmp_path / LOCK).write_text("")
    look = os.lstat

    def late(path, **more):
        if Path(path).name == LOCK:
            monkeypatch.setattr(run_lock.os, "lstat", look)
            os.unlink(path)
        return look(path, **more)

    monkeypatch.setattr(run_lock.os, "lstat", late)
    lock = RunLock(tmp_path)
    lock.take()
    assert json.loads(lock.path.read_text())["process"] == os.getpid()
    lock.release()


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.EACCES])
def test_both_error_numbers_of_posix_mean_that_the_lock_is_held(recorded, monkeypatch, number):
    def refuse(*arguments):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(run_lock.fcntl, "flock", refuse)
    with pytest.raises(UsageError, match="is being written by process"):
        recorded().take()


def test_is_held_does_not_release_the_lock(tmp_path):
    lock = RunLock(tmp_path)
    assert not lock.is_held()
    lock.take()
    assert lock.is_held() and RunLock(tmp_path).is_held() and lock.path.is_file()
    lock.release()
    assert not lock.is_held()


def test_a_released_lock_is_garbage_collected(tmp_path):
    lock = RunLock(tmp_path)
    lock.take()
    lock.release()
    seen = weakref.ref(lock)
    del lock
    gc.collect()
    assert seen() is None


@pytest.mark.parametrize(
    "name", ["plain", "with space", "größe", "back\\slash", "no\u00a0break", "form\x0cfeed"]
)
def test_mounts_of_any_name_are_found(tmp_path, monkeypatch, name):
    """/proc/self/mountinfo has spaces and backslashes in octal, and other characters as they are."""
    folder = tmp_path / name
    folder.mkdir()
    written = str(folder).replace("\\", "\\134").replace(" ", "\\040")
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 0:50 / {written} rw - nfs server:/x nolock\n")
    monkeypatch.setattr(run_lock, "_MOUNTS", mounts)
    assert not run_lock._passes_locks_on(folder) and run_lock._passes_locks_on(tmp_path)


def test_a_link_in_place_of_the_lock_is_not_followed(tmp_path):
    (tmp_path / "victim").write_text("kept")
    (tmp_path / LOCK).symlink_to(tmp_path / "victim")
    with pytest.raises(UsageError, match="not a file that a run writes"):
        RunLock(tmp_path).take()
    assert (tmp_path / "victim").read_text() == "kept"


@pytest.fixture
def full_disk(tmp_path):
    """A full file system of 100 KiB; skipped without the rights to mount one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=100k", "tmpfs", str(disk)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True)
    except FileNotFoundError as error:
        pytest.skip(str(error))
    if done.returncode:
        pytest.skip(f"no file system of its own here: {done.stderr.strip()}")
    try:
        with pytest.raises(OSError, match="No space"), (disk / "fill").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(1024))
        yield disk
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.fault(
    "the file system of the run directory is full before the run starts", "refused; no file remains"
)
def test_a_run_on_a_full_disk_is_refused(full_disk, fit):
    result = fit("--run_dir", str(full_disk / "run"), status=1)
    assert "No space left on device" in result.err and str(full_disk / "run") in result.err.replace("\n", "")
    assert [path.name for path in full_disk.iterdir()] == ["fill"]


def test_a_lock_file_that_cannot_be_written_is_removed(tmp_path, monkeypatch):
    def no_room(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", no_room)
    with pytest.raises(OSError, match="No space left") as caught:
        RunLock(tmp_path / "run").take()
    assert caught.value.filename == str(tmp_path / "run" / LOCK)
    assert list((tmp_path / "run").iterdir()) == []


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EROFS])
def test_a_folder_that_cannot_be_written_is_refused_with_a_remedy(tmp_path, monkeypatch, number):
    def refused(*arguments):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(UsageError, match=r"cannot be written \(.*\)\nGive another folder: --run_dir NEW; a"):
        RunLock(tmp_path / "run").take()
    with pytest.raises(UsageError, match=r"Give another folder: --out NEW$"):
        RunLock(tmp_path / "run", "--out").take()
    assert not RunLock(tmp_path / "run").is_held()
    monkeypatch.undo()
    monkeypatch.setattr(os, "mkdir", refused)
    with pytest.raises(UsageError, match="new/run.lock cannot be written .*\nGive another folder: --run_d"):
        RunLock(tmp_path / "new").take()


@pytest.mark.slow
@pytest.mark.fault("HOME cannot be written", "the run is the same, without caches")
def test_a_home_that_cannot_be_written(tiny_kg, tmp_path):
    """Not even root can write files to /proc."""
    command = (
        f"fit --model knowformer --data kg --data.path {tiny_kg} --trainer smoke --run_dir {tmp_path}/run"
    )
    environment = {key: value for key, value in os.environ.items() if key != "XDG_CACHE_HOME"}
    for name in ("/proc", None):
        changed = (
            {**environment, "HOME": name} if name else {k: v for k, v in environment.items() if k != "HOME"}
        )
        done = subprocess.run(
            [sys.executable, "-m", "graphzoo.cli", *command.split(), "--quiet"],
            env=changed,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
        shutil.rmtree(tmp_path / "run")
