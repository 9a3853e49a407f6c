"""Choose the pictures for the model of a run."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from graphzoo.catalog.tasks import function_of, inference_task
from graphzoo.errors import UsageError
from graphzoo.report.content import Block, Code, Note

if TYPE_CHECKING:
    from graphzoo.inference import KGModel, LinkModel, NodeModel
    from graphzoo.inference.trained import TrainedModel
    from graphzoo.report.content import Options
    from graphzoo.runs.record import Record


def model_blocks(record: Record, options: Options, prefix: str, *, depth_drawn: bool = False) -> list[Block]:
    """Pictures of the model that was tested.

    Args:
        record: The run.
        options: Options of the report.
        prefix: What names of pictures begin with.
        depth_drawn: Whether the report has a depth curve of this run; if not, PENCIL gets a hint about it.

    Raises:
        UsageError: if the tested checkpoint is missing or cannot be loaded.
    """
    import graphzoo
    from graphzoo.system.progress import progress

    tested = record.result.get("checkpoint")
    # The run itself, or, for a run of `graphzoo test`, the one that it tested.
    folders = [record.path, *([Path(tested).parent.parent] if isinstance(tested, str) else [])]
    run = next((folder for folder in folders if any((folder / "checkpoints").glob("*.ckpt"))), None)
    if run is None:
        raise UsageError("the run has no checkpoint")
    name = run.name
    if isinstance(tested, str):  # which need not be the best one
        files = [run / "checkpoints" / Path(tested).name, Path(tested)]
        run = next((file for file in files if file.is_file()), run)
    with progress(f"looking into {name}"):
        model = graphzoo.load(run, device=options.device)
        if isinstance(tested, str) and not model.is_tested_by(record.result):
            raise UsageError("the checkpoint that was tested is no longer there")
        draw = function_of(inference_task(model).pictures)
        blocks: list[Block] = draw(model, record, options, prefix, depth_drawn)
    return blocks


def of_facts(model: KGModel, _: Record, options: Options, prefix: str, depth_drawn: bool) -> list[Block]:
    """Pictures of the entities that answers attend to."""
    from graphzoo.report.models.knowformer import attended_blocks

    return attended_blocks(model, options.facts, prefix)


def of_nodes(
    model: NodeModel, record: Record, options: Options, prefix: str, depth_drawn: bool
) -> list[Block]:
    """Pictures of attention between nodes, and for GALiT of ranks."""
    from graphzoo.encoders import GALiT
    from graphzoo.encoders.base import NodeEncoder
    from graphzoo.report.models.attention import attention_blocks
    from graphzoo.report.models.galit import rank_blocks

    _check_facts(record, options)
    if not isinstance(model.task.encoder, NodeEncoder):
        return _no_picture(model)
    graph = model.graph
    # The pictures need little computing.
    encoder = model.task.encoder.cpu()
    x = model.transform(graph.x, graph.feature_names)
    blocks = rank_blocks(encoder, x, graph, prefix) if isinstance(encoder, GALiT) else []
    if isinstance(encoder, GALiT) and not len(encoder.layers):
        return blocks
    return [*blocks, *attention_blocks(encoder, x, graph, prefix)]


def of_pairs(
    model: LinkModel, record: Record, options: Options, prefix: str, depth_drawn: bool
) -> list[Block]:
    """A hint about the depth curve of PENCIL; a note for other encoders."""
    from graphzoo.encoders import PENCIL

    _check_facts(record, options)
    encoder = model.task.encoder
    if not isinstance(encoder, PENCIL):
        return _no_picture(model)
    return [] if depth_drawn else _depth_hint(record, int(encoder.init_args["num_layers"]))


def _check_facts(record: Record, options: Options) -> None:
    if options.facts:
        raise UsageError(f"{record.path} is not a model of facts (head, relation, tail)\nLeave out --fact")


def _no_picture(model: TrainedModel) -> list[Block]:
    return [Note(f"There is no picture of {type(model.task.encoder).__name__}.")]


def _depth_hint(record: Record, num_layers: int) -> list[Block]:
    """A note that says how to make the depth curve, which needs runs of several depths."""
    from graphzoo.runs.changes import repeat_command

    text = (
        f"This run has {num_layers} layer{'s' * (num_layers > 1)}. If the report is given runs of other "
        "depths with otherwise the same settings, too, it draws the test metric against the number of "
        "layers, as in the paper's Fig. 5."
    )
    other = max(1, num_layers - 1) if num_layers > 1 else num_layers + 1
    words = shlex.split(repeat_command(record))
    base = [word for word in words if not word.startswith("--model.encoder.num_layers=")]
    return [Note(text), Code("Such a run:", shlex.join([*base, f"--model.encoder.num_layers={other}"]))]
