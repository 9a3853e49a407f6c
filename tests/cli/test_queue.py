"""`graphzoo reproduce --all FILE`: a queue of rows, how it resumes, and the estimate of the time left."""

import json
from pathlib import Path

import pytest

from graphzoo.cli import main
from graphzoo.cli import reproduce as reproduce_module
from graphzoo.cli.queue import _pace, _without_comment, read_queue, run_queue
from graphzoo.cli.reproduce import reproduce_parser
from graphzoo.errors import UsageError
from graphzoo.runs.checkpoints import RUNS
from graphzoo.training.plan import make_plan

TINY = [
    "--model.encoder.hidden_channels=8",
    "--trainer.accelerator=cpu",
    "--logger=csv",
    "--trainer.max_epochs=2",
]
STOP = [f"--trainer.callbacks{words}" for words in ("+=helpers.own.SendSignal", ".epoch=1", ".batch=0")]


@pytest.fixture
def queue(cli, tiny_nodes):
    """`queue(*lines)` writes these rows to a file and runs them in this process, with small models."""

    def run(*lines, more=()):
        rows = [line.replace("NODES", f"nodes --data.path={tiny_nodes}") for line in lines]
        Path("rows.txt").write_text("\n".join(rows))
        return cli("reproduce", "--all", "rows.txt", "--in-process", *TINY, *more)

    return run


def entries(*lines, runs=RUNS):
    Path("rows.txt").write_text("\n".join(lines))
    return read_queue(Path("rows.txt"), reproduce_parser(), [], runs, in_process=True)


def finish(entry, seconds):
    """Write results as if each unfinished run of a row had taken so many seconds."""
    for folder in entry.run_folders(finished=False):
        folder.mkdir(parents=True)
        (folder / "results.json").write_text(json.dumps({"seconds": seconds}))


def test_rows_run_in_turn_and_complete_ones_are_skipped(queue):
    lines = [
        "# two models",
        "",
        "galit NODES --seeds 0,1  # a comment",
        "graphzoo reproduce gcn NODES --seeds 0",
    ]
    done = queue(*lines)
    assert done.status == 0, done.err
    assert "row 1 of 2: galit" in done.err and "left: 2 rows, 3 runs" in done.err
    assert "row 2 of 2: gcn" in done.err and "left: 1 row, 1 run" in done.err
    assert "2 rows complete, 0 of them before; 0 failed" in done.err
    row = Path("runs/reproduce/galit-tiny/row.json")
    assert json.loads(row.read_text())["seeds"] == [0, 1]
    written = row.stat().st_mtime_ns

    again = queue(*lines)
    assert again.status == 0 and "row 1" not in again.err and "2 of them before" in again.err
    assert row.stat().st_mtime_ns == written, "a complete row is left alone"

    more = queue(lines[2].replace("0,1", "0,1,2"), lines[3])
    assert more.status == 0 and "left: 1 row, 1 run" in more.err, "only the new seed runs"
    assert json.loads(row.read_text())["seeds"] == [0, 1, 2]


def test_a_stop_ends_the_queue_and_the_same_command_continues(queue):
    lines = ["galit NODES --seeds 0", "gcn NODES --seeds 0"]
    stopped = queue(*lines, more=STOP)
    assert stopped.status == 143 and "to continue the queue" in stopped.err
    assert "row 2" not in stopped.err, "a signal stops the whole queue"
    resumed = queue(*lines, more=STOP)  # the first row resumes, then the second is stopped
    assert (
        resumed.status == 143
        and "seed 0: resumes from its last checkpoint" in resumed.err
        and "row 2 of 2" in resumed.err
    )
    done = queue(*lines, more=STOP)
    assert done.status == 0 and "row 1 of 2" not in done.err and "1 of them before" in done.err


def test_a_failed_row_is_listed_at_the_end_and_stops_no_other(queue):
    done = queue("galit NODES --seeds 0 --model.lr=-1", "gcn NODES --seeds 0", "mlp NODES --splits 99")
    assert done.status == 1
    assert Path("runs/reproduce/gcn-tiny/row.json").is_file()
    end = done.err[done.err.index("queue: ") :]
    assert "1 row complete, 0 of them before; 2 failed" in end
    assert "rows.txt, line 1: galit" in end and "exit status 2" in end
    assert "rows.txt, line 3: mlp" in end and "there is no split 99" in end
    apart = queue("galit NODES --seeds 0 --out alone", "gcn NODES --seeds 0")
    assert apart.err.rstrip().endswith("all rows as a table: graphzoo results runs alone")


def test_a_killed_run_fails_only_its_row(workplace):
    statuses = iter([137, 0])
    found = entries("galit cora --seeds 0", "galit citeseer --seeds 0")
    assert run_queue(found, lambda row: next(statuses), RUNS) == 1


def test_a_row_with_other_options_is_refused(queue):
    assert queue("galit NODES --seeds 0").status == 0
    other = queue("galit NODES --seeds 0 --model.lr=0.1")
    assert other.status == 1 and "other options" in other.err


def test_out_is_the_default_folder_of_rows(queue):
    assert queue("gcn NODES --seeds 0", "mlp NODES --seeds 0 --out own", more=["--out=there"]).status == 0
    assert Path("there/reproduce/gcn-tiny/row.json").is_file() and Path("own/row.json").is_file()


def test_the_time_left_is_estimated_from_recipes_then_from_finished_runs(workplace, capsys):
    lines = [
        "galit cora --seeds 0-1",
        "galit citeseer --seeds 0-2",
        "pencil cora-link --seeds 0 --recipe none",
    ]
    galit, citeseer, unknown = entries(*lines)
    claimed = galit.claimed()
    assert claimed and citeseer.claimed(), "the recipes name their times"
    assert galit.seconds_left(1.0) == 2 * claimed
    assert unknown.seconds_left(1.0) is None

    finish(galit, 10 * claimed)
    assert galit.seconds_left(1.0) == 0.0 and not galit.is_complete(), "its runs are not averaged yet"
    assert _pace([galit, citeseer, unknown]) == pytest.approx(10.0), "this machine is ten times slower"
    run_queue([galit, citeseer, unknown], lambda row: 0, RUNS)
    message = capsys.readouterr().err
    assert "left: 3 rows, 4 runs, probably" in message and "and 1 row of unknown time" in message

    more = entries("galit cora --seeds 0-4")[0]
    assert more.seconds_left(1.0) == pytest.approx(3 * 10 * claimed), "its own runs are a better estimate"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("", "rows.txt has no row"),
        ("# nothing", "rows.txt has no row"),
        ("galit cora\nknowfromer umls", "rows.txt, line 2: unknown model 'knowfromer'"),
        ("galit", "rows.txt, line 1: reproduce needs a model and a data set"),
        ("galit cora --seeds a", "rows.txt, line 1: --seeds takes numbers"),
        ("galit cora 'x", "rows.txt, line 1: No closing quotation"),
        ("galit cora --all more.txt", "rows.txt, line 1: a row cannot use --all"),
        ("galit cora --help", "rows.txt, line 1: a row cannot use --help"),
        (
            "galit cora\ngalit cora --model.lrr 0.1 --out b",
            "rows.txt, line 2: unknown option --model.lrr\nDid you mean: --model.lr",
        ),
        ("galit cora --out q\ngcn cora --out ./x/../q", "line 2: its runs would go where those of rows.txt"),
        (
            "galit cora\n\ngalit cora --model.lr 0.1",
            "line 3: its runs would go where those of rows.txt, line 1 go",
        ),
    ],
)
def test_wrong_files_are_refused_before_a_run(cli, workplace, lines, message):
    Path("rows.txt").write_text(lines)
    result = cli("reproduce", "--all", "rows.txt")
    assert result.status == 2 and message in result.err, result.err
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--all", "nothing.txt"], "nothing.txt: No such file"),
        (["--all", "."], "--all .: "),
        (["galit", "cora", "--all", "rows.txt"], "leave 'galit' out"),
        (["--all", "rows.txt", "galit", "cora"], "leave 'galit' out"),
        (["--all", "rows.txt", "--seeds", "0"], "--seeds is for one row"),
        # The value after an option is not taken for a model.
        (
            ["--all", "rows.txt", "--trainer.max_epochs", "2", "--model.lrr", "1"],
            "line 1: unknown option --model.lrr",
        ),
        (["--all"], "--all needs a value"),
    ],
)
def test_wrong_arguments_beside_a_queue_are_refused(cli, workplace, words, message):
    Path("rows.txt").write_text("galit cora")
    result = cli("reproduce", *words)
    assert result.status == 2 and message in result.err, result.err


def test_bytes_that_are_no_text_are_refused(workplace):
    Path("rows.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="not text"):
        read_queue(Path("rows.txt"), reproduce_parser(), [], RUNS, in_process=False)


def test_each_run_of_a_queue_has_its_own_process(cli, monkeypatch, tiny_nodes):
    begun = []
    monkeypatch.setattr(reproduce_module, "run_command", lambda words: begun.append(words) or main(words))
    Path("rows.txt").write_text(f"gcn nodes --data.path={tiny_nodes} --seeds 0")
    assert cli("reproduce", "--all=rows.txt", *TINY).status == 0
    assert len(begun) == 1


def test_a_row_whose_recipe_was_edited_is_not_complete(queue):
    Path("mine.yaml").write_text("model: {init_args: {lr: 0.01}}\n")
    line = "gcn NODES --seeds 0 --recipe mine.yaml"
    assert queue(line).status == 0
    assert "1 row complete, 1 of them before" in queue(line).err
    Path("mine.yaml").write_text("model: {init_args: {lr: 0.02}}\n")
    edited = queue(line)
    assert edited.status == 1 and "holds seeds made before mine.yaml changed" in edited.err


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("galit nodes --data.path c#1 --seeds 0-9  # a note", "galit nodes --data.path c#1 --seeds 0-9  "),
        ("# nothing", ""),
        ("galit nodes --data.path 'a # b' \\#c \"#\" #d", "galit nodes --data.path 'a # b' \\#c \"#\" "),
    ],
)
def test_a_comment_starts_at_a_word(line, kept):
    assert _without_comment(line) == kept


def test_a_byte_order_mark_is_no_part_of_a_row(workplace):
    Path("rows.txt").write_bytes(b"\xef\xbb\xbfgalit cora --seeds 0\r\n")
    (row,) = read_queue(Path("rows.txt"), reproduce_parser(), [], RUNS, in_process=True)
    assert row.text == "galit cora --seeds 0"


def test_a_tilde_in_a_line_is_the_home(workplace, monkeypatch):
    monkeypatch.setenv("HOME", str(workplace / "home"))
    (entry,) = entries("galit cora --out ~/row")
    assert entry.row.base == workplace / "home/row"
    plan = make_plan("fit", ["--model=galit", "--data=cora", "--run_dir=~/run"])
    assert plan.run_dir == workplace / "home/run"
