"""A failed write leaves the old checkpoint and nothing else."""

import errno

import pytest
import torch

from graphzoo.callbacks.checkpoint_file import CheckpointFile


def test_what_cannot_be_stored_leaves_no_file(tmp_path):
    with pytest.raises(AttributeError, match="local object"):
        CheckpointFile().save_checkpoint({"function": lambda: None}, tmp_path / "last.ckpt")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("room", [100, 50_000])
def test_a_file_without_room_is_named_with_the_systems_reason(tmp_path, room):
    """torch would report an unexpected position in its archive."""
    resource = pytest.importorskip("resource")
    path = tmp_path / "last.ckpt"
    CheckpointFile().save_checkpoint({"epoch": 1}, path)
    least, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, most))
    try:
        with pytest.raises(OSError, match="last.ckpt") as caught:
            CheckpointFile().save_checkpoint({"weight": torch.zeros(10**6)}, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (least, most))
    assert caught.value.errno == errno.EFBIG
    assert [*tmp_path.iterdir()] == [path] and torch.load(path) == {"epoch": 1}
