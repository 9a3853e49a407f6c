"""KGCompletion on a small graph of families, whose rule can be learned in seconds."""

from functools import partial

import lightning as L
import torch

from graphzoo.encoders import KnowFormer
from graphzoo.tasks import KGCompletion

SMALL = {"hidden_channels": 16, "num_layers": 1, "num_heads": 2}


def write_family(folder, families=40, seed=0):
    """Families with the rule "a parent of a parent is a grandparent", in three splits."""
    generator = torch.Generator().manual_seed(seed)
    facts, asked = [], []
    for i in range(families):
        facts += [(f"a{i}", "parent", f"b{i}"), (f"b{i}", "parent", f"c{i}")]
        asked.append((f"a{i}", "grandparent", f"c{i}"))
    order = torch.randperm(families, generator=generator).tolist()
    cut = families // 2
    splits = {
        "train": facts + [asked[i] for i in order[:cut]],
        "valid": [asked[i] for i in order[cut : cut + families // 4]],
        "test": [asked[i] for i in order[cut + families // 4 :]],
    }
    for name, triples in splits.items():
        (folder / f"{name}.txt").write_text("".join("\t".join(t) + "\n" for t in triples))
    return folder


def make_trainer(folder, **settings):
    defaults = {
        "max_epochs": 2, "accelerator": "cpu", "logger": False, "enable_progress_bar": False,
        "enable_model_summary": False, "num_sanity_val_steps": 0, "default_root_dir": folder,
        "enable_checkpointing": False,
    }  # fmt: skip
    return L.Trainer(**{**defaults, **settings})


def make_task(seed=0, encoder=None, **settings):
    torch.manual_seed(seed)
    return KGCompletion(partial(KnowFormer, **(encoder or SMALL)), seed=seed, **settings)
