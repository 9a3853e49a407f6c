"""Completions for the Tab key, in this process and in bash."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from graphzoo.cli.commands import COMMANDS
from graphzoo.training.options import MATMUL_PRECISIONS


@pytest.fixture
def offer(cli):
    def run(*words):
        result = cli("_complete", *words)
        assert result.status == 0 and not result.err
        return result.out.splitlines()

    return run


def test_the_first_word_is_a_command(offer):
    assert offer("") == list(COMMANDS) and "_complete" not in offer("")
    assert offer("re") == ["reproduce", "results"]
    assert offer("nothing") == [] == offer("fit", "--model", "nothing")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["fit", "--mod"], ["--model"]),
        (["fit", "--dry"], ["--dry-run"]),
        (["test", "--dry"], []),
        (["compare", "--matmul"], ["--matmul_precision"]),
        (["fit", "--model", "=", "know"], ["knowformer", "knowformer-any"]),
        (["reproduce", "--seeds", "0", "gali"], ["galit"]),
        (["search", "galit", "--trials", "5", "digi"], ["digits"]),
        (["reproduce", "--in-process", "gali"], ["galit"]),
        (["fit", "--model", "know"], ["knowformer", "knowformer-any"]),
        (["fit", "--model=know"], ["--model=knowformer", "--model=knowformer-any"]),
        (["fit", "--data", "wn18rr-v"], [f"wn18rr-v{i}" for i in range(1, 5)]),
        (
            ["fit", "--model", "knowformer", "--recipe", "umls"],
            ["umls", "umls-both-ends", "umls-demo", "umls-plain"],
        ),
        (["reproduce", "galit", "--data", "x"], []),
        (["reproduce", "galit", "citese"], ["citeseer", "citeseer-heuristics", "citeseer-link"]),
        (["reproduce", "galit", "citeseer", "--ablation", "atten"], ["attention"]),
        (["search", "gal"], ["galit"]),
        (["search", "galit", "cora", "--space", "galit-c"], ["galit-citation"]),
        (["search", "galit", "cora", "--win"], ["--window"]),
        (["predict", "--expl"], ["--explain"]),
        (["predict", "--model", ""], ["knowformer-any"]),
        (["export", "--lic"], ["--license"]),
        (["list", "abl"], ["ablation"]),
        (["download", "yago"], ["yago310", "yago310-quarter"]),
        (["completion", "z"], ["zsh"]),
        (["fit", "--logger", "w"], ["wandb"]),
        (["nocommand", "--x"], []),
    ],
)
def test_names_and_options_are_offered(offer, words, expected):
    assert offer(*words) == expected


def test_fixed_choices_are_those_of_the_commands(offer):
    from graphzoo.cli import plot, predict, results
    from graphzoo.inference import export
    from graphzoo.report import dashboard
    from graphzoo.search.space import SAMPLERS

    (known,) = (action.choices for action in predict.predict_parser().actions if action.dest == "known")
    choices = {
        ("export", "run", "--to"): export.FORMATS,
        ("results", "--format"): results._FORMATS,
        ("plot", "run", "--format"): plot.FORMATS,
        ("dashboard", "--task"): ("all", *dashboard.KINDS),
        ("predict", "--known"): known,
        ("search", "galit", "cora", "--sampler"): SAMPLERS,
    }
    for words, expected in choices.items():
        assert offer(*words, "") == list(expected), words
        first = expected[0]
        assert offer(*words[:-1], f"{words[-1]}={first[:2]}") == [f"{words[-1]}={first}"]
    assert offer("fit", "--trainer.accelerator", "") == [] == offer("export", "--out", "")


def test_runs_are_offered_newest_first(offer, workplace):
    for name in ("20250101-000000-aa", "20260101-000000-bb"):
        run = workplace / "runs" / "galit-cora" / name
        run.mkdir(parents=True)
        (run / "config.yaml").write_text("# graphzoo")
    newest = "runs/galit-cora/20260101-000000-bb"
    assert offer("predict", "--ckpt_path", "")[:3] == ["best", "last", newest]
    assert offer("results", "--published", "runs/") == offer("results", "runs/") != []
    older = "runs/galit-cora/20250101-000000-aa"
    assert offer("export", "runs/") == [newest, older] == offer("fit", "runs/")


def test_wrong_calls_are_refused(cli):
    result = cli("completion", "bosh")
    assert result.status == 2 and "bash" in result.err and len(result.err.splitlines()) <= 3
    assert cli("completion").status == 2
    assert "~/.bashrc" in cli("completion", "--help").out


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_completion_in_bash(tmp_path):
    """Bash passes its words to the command and reads the completions."""
    command = tmp_path / "graphzoo"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m graphzoo.cli "$@"\n')
    command.chmod(0o755)
    repository = str(Path(__file__).resolve().parents[2])
    script = (
        'eval "$(graphzoo completion bash)"; COMP_WORDS=(graphzoo fit --model know); COMP_CWORD=3; '
        "_graphzoo; "
        'echo "${COMPREPLY[@]}"; COMP_WORDS=(graphzoo fit --model = know); COMP_CWORD=4; _graphzoo; '
        'echo "${COMPREPLY[@]}"; complete -p graphzoo'
    )
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": repository}
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, env=environment, cwd=tmp_path
    )
    assert done.stdout.splitlines() == [
        "knowformer knowformer-any",
        "knowformer knowformer-any",
        "complete -o default -F _graphzoo graphzoo",
    ], done.stderr


def test_precisions_are_offered(offer):
    for words in (["fit"], ["reproduce", "galit", "cora"]):
        assert offer(*words, "--matmul_precision", "") == list(MATMUL_PRECISIONS)
        assert offer(*words, "--matmul_precision=hi") == [
            "--matmul_precision=highest",
            "--matmul_precision=high",
        ]
