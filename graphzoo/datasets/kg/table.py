"""The table of knowledge graphs: folder, counts, content hashes, addresses, licence. Standard library only.

Hashes and counts are in `kg_files.json` beside this file. A hash is the sha256 of a file's *content*: its
distinct lines sorted by bytes, with LF ends and no byte order mark (see `content_hash`). It does not depend
on the order of lines, line ends or gzip, so that it is the same for all mirrors of a data set. A file has no
hash if its original was not available; its counts are checked nevertheless.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from graphzoo.datasets.files.sources import Row, find_row, read_facts

_RAW = "https://raw.githubusercontent.com"
# Addresses name a commit if one was found. Files of `master` are checked by the hashes in kg_files.json.
_KNOWFORMER = f"{_RAW}/jnanliu/KnowFormer/59880af1fd086a4bdea15cb9a174c09b5ada666e/data"
_KGE = f"{_RAW}/DeepGraphLearning/KnowledgeGraphEmbedding/617062aaedf53bf4d6b44450a580a96dc30e0632/data"
_PYKEEN = f"{_RAW}/pykeen/pykeen/master/src/pykeen/datasets"
_VILLMOW = f"{_RAW}/villmow/datasets_knowledge_embedding/045a868edc0b18d7083b14e80715e82d92938fff"
_CODEX = f"{_RAW}/tsafavi/codex/e805ea2f512d7f0f8e44f213bc4db51dac0de118/data/triples"
_GRAIL = f"{_RAW}/kkteru/grail/master/data"
_MSTAR = f"{_RAW}/nju-websoft/MStar/1a05189fe1329d79e8f02323f212776ed879dbc0/data"


@dataclass(frozen=True)
class FileFacts:
    """Count, size and hashes of one split file."""

    num_triples: int  # distinct
    sha256: str | None  # of the content; None if the file was not available
    num_bytes: int  # uncompressed, 0 if unknown
    md5: str | None = None  # of the file as published, if no sha256 is known


@dataclass(frozen=True)
class KGSource(Row):
    """One row of the table; its folder lies below `<data root>/kg/`."""

    urls: tuple[str, ...]  # of a split file, tried in order; `{split}` stands for train, valid or test
    inductive: str | None = None  # folder of the graph that is predicted on; None if it is the same graph
    inductive_urls: tuple[str, ...] = ()
    embedded: bool = False  # the triples are part of the package
    provisional: tuple[str, ...] = ()  # splits whose hash is of a reconstructed file: a difference only warns

    def counts(self, folder: str | None = None) -> tuple[int, int]:
        """Expected numbers of entities and relations of a folder; None is the folder of the row."""
        facts = self._facts(folder)
        return int(facts["entities"]), int(facts["relations"])

    def file(self, split: str, folder: str | None = None) -> FileFacts:
        """Count, size and hashes of one split file of a folder; None is the folder of the row."""
        values = self._facts(folder)[split]
        return FileFacts(values["triples"], values["sha256"], values["bytes"], values.get("md5"))

    def _facts(self, folder: str | None) -> dict[str, Any]:
        return read_facts("graphzoo.datasets.kg", "kg_files.json")[folder or self.folder]


def content_hash(data: bytes) -> str:
    r"""sha256 of the distinct lines of a text, sorted by bytes and each ended by LF.

    >>> content_hash(b"b\r\na") == content_hash(b"a\nb\nb\n")
    True
    """
    lines = set(data.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").split(b"\n"))
    lines.discard(b"")
    digest = hashlib.sha256()
    for line in sorted(lines):
        digest.update(line + b"\n")
    return digest.hexdigest()


def list_knowledge_graphs() -> list[str]:
    """Names of the knowledge graphs of the table, in its order."""
    return [source.name for source in _SOURCES]


def find_source(name: str) -> KGSource:
    """The row of a data set by its name or folder; case, `-` and `_` do not matter.

    Raises:
        UsageError: if there is no such row; the message names the nearest one.
    """
    return find_row(_SOURCES, name, kind="knowledge graph", own="kg", folders=True)


_CONVE = "MIT (TimDettmers/ConvE)"
_DETTMERS = "Dettmers et al., Convolutional 2D Knowledge Graph Embeddings, AAAI 2018"
_KEMP = f"Kemp et al., Learning Systems of Concepts, AAAI 2006; split of {_DETTMERS}"
_TERU = "Teru et al., Inductive Relation Prediction by Subgraph Reasoning, ICML 2020"
_TOUTANOVA = "Toutanova & Chen, Observed versus Latent Features for Knowledge Base Completion, CVSC 2015"
_CODEX_PAPER = "Safavi & Koutra, CoDEx: A Comprehensive Knowledge Graph Completion Benchmark, EMNLP 2020"
_COUNTRIES = "Bouchard et al., On Approximate Reasoning Capabilities of Low-Rank Vector Spaces, AAAI SSS 2015"


def _at(*folders: str) -> tuple[str, ...]:
    return tuple(f"{folder}/{{split}}.txt" for folder in folders)


def _inductive(prefix: str, folder: str, grail: str, knowformer: str) -> list[KGSource]:
    def urls(suffix: str) -> tuple[str, ...]:
        return _at(
            f"{_GRAIL}/{grail}{suffix}",
            f"{_KNOWFORMER}/inductive/{knowformer}{suffix}",
            f"{_MSTAR}/{grail}{suffix}",
        )

    return [
        KGSource(
            f"{prefix}-v{k}",
            f"{folder}_v{k}",
            "none stated (kkteru/grail), MIT (jnanliu/KnowFormer)",
            _TERU,
            urls(f"_v{k}"),
            inductive=f"{folder}_v{k}_ind",
            inductive_urls=urls(f"_v{k}_ind"),
        )
        for k in range(1, 5)
    ]


_UMLS_AT = _at(f"{_PYKEEN}/umls", f"{_VILLMOW}/other/umls")
_FB_AT = _at(f"{_KNOWFORMER}/fb15k-237", f"{_KGE}/FB15k-237")
_WN_AT = _at(f"{_VILLMOW}/WN18RR/text", f"{_KGE}/wn18rr")
_SOURCES = (
    KGSource("umls", "UMLS", "MIT (pykeen/pykeen)", _DETTMERS, _UMLS_AT, embedded=True),
    KGSource("fb15k237", "FB15k-237", _CONVE, _TOUTANOVA, _FB_AT),
    KGSource("wn18rr", "WN18RR", _CONVE, _DETTMERS, _WN_AT),
    KGSource(
        "nell995",
        "NELL-995",
        "MIT (jnanliu/KnowFormer)",
        "Xiong et al., DeepPath, EMNLP 2017; split of RED-GNN and KnowFormer",
        _at(f"{_KNOWFORMER}/nell-995"),
        provisional=("train",),
        note="the hash of train is of a file decoded from thunlp/OpenKE, believed to be the same triples",
    ),
    KGSource(
        "yago310",
        "YAGO3-10",
        "none stated",
        f"Mahdisoltani et al., YAGO3, CIDR 2015; split of {_DETTMERS}",
        _at(f"{_KGE}/YAGO3-10"),
        note="no content hash is known: counts are checked, a download also by the md5 in TorchDrug",
    ),
    KGSource("kinship", "Kinship", "MIT (pykeen/pykeen)", _KEMP, _at(f"{_PYKEEN}/kinships")),
    KGSource("nations", "Nations", "MIT (pykeen/pykeen)", _KEMP, _at(f"{_PYKEEN}/nations")),
    KGSource("codex-m", "CoDEx-M", "MIT (tsafavi/codex)", _CODEX_PAPER, _at(f"{_CODEX}/codex-m")),
    *(
        KGSource(f"countries-s{k}", f"Countries_S{k}", _CONVE, _COUNTRIES, _at(f"{_KGE}/countries_S{k}"))
        for k in range(1, 4)
    ),
    KGSource(
        "yago310-quarter",
        "YAGO3-10-quarter",
        "none stated (LARS-research/RED-GNN)",
        "the train quarter of RED-GNN with the full valid and test sets of YAGO3-10",
        (),
        note="for scale tests only, not comparable with YAGO3-10; no public file has this layout",
    ),
    *_inductive("fb15k237", "FB15k-237", "fb237", "fb15k-237"),
    *_inductive("wn18rr", "WN18RR", "WN18RR", "wn18rr"),
    *_inductive("nell995", "NELL-995", "nell", "nell-995"),
)
