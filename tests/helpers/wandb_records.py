"""Read an offline run of Weights & Biases, the file run-<id>.wandb, which is a LevelDB log."""

import json
import struct
from pathlib import Path
from types import SimpleNamespace

_BLOCK, _HEADER = 32768, 7


def records(path):
    """The Record messages of a .wandb file."""
    from wandb.proto import wandb_internal_pb2

    content = Path(path).read_bytes()
    assert content[:4] == b":W&B"
    place, parts = 7, []
    while place + _HEADER <= len(content):
        room = _BLOCK - place % _BLOCK
        if room < _HEADER:  # padding with zeros
            place += room
            continue
        _, length, kind = struct.unpack("<IHB", content[place : place + _HEADER])
        if kind == 0:
            break
        parts.append(content[place + _HEADER : place + _HEADER + length])
        place += _HEADER + length
        if kind in (1, 4):  # a whole record, or its last part
            record = wandb_internal_pb2.Record()
            record.ParseFromString(b"".join(parts))
            parts = []
            yield record


def _key(item):
    return item.key or "/".join(item.nested_key) if not item.nested_key else ".".join(item.nested_key)


def read_offline_run(directory):
    """The only run below RUN/wandb: configuration, history, summary, defined metrics, artifacts."""
    (path,) = Path(directory).glob("wandb/offline-run-*/run-*.wandb")
    return read_run_file(path)


def read_run_file(path):
    """The same for one file."""
    found = SimpleNamespace(config={}, history=[], summary={}, best={}, run=None, path=Path(path))
    found.artifacts = []  # models only; logged tables are artifacts, too
    for record in records(path):
        kind = record.WhichOneof("record_type")
        if kind == "run":
            found.run = record.run
            _update(found.config, record.run.config.update)
        elif kind == "config":
            _update(found.config, record.config.update)
        elif kind == "history":
            found.history.append({_key(item): json.loads(item.value_json) for item in record.history.item})
        elif kind == "summary":
            for item in record.summary.update:
                found.summary[_key(item)] = json.loads(item.value_json)
        elif kind == "artifact" and record.artifact.type == "model":
            found.artifacts.append(record.artifact)
        elif kind == "metric":
            summary = record.metric.summary
            name = record.metric.name or record.metric.glob_name
            found.best[name] = [what for what in ("min", "max", "last") if getattr(summary, what)]
    found.keys = {key for row in found.history for key in row}
    return found


def _update(config, items):
    for item in items:
        config[_key(item)] = json.loads(item.value_json)
