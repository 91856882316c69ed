"""The command line: what it runs, says and returns, whatever the subcommand."""

import os
import subprocess
import sys
import types

import pytest

from tilejax import cli
from tilejax.errors import ShapeError

RUN = (sys.executable, "-m", "tilejax.cli")


@pytest.fixture
def command(monkeypatch):
    """Make `tilejax try` the only subcommand, and the given function its body."""

    def install(body, **arguments):
        module = types.ModuleType("tried_command")
        module.__dict__["run"] = body
        monkeypatch.setitem(sys.modules, module.__name__, module)
        entry = cli.Command("try", "Try.", module.__name__, arguments)
        monkeypatch.setattr(cli, "COMMANDS", (entry,))

    return install


def test_a_subcommand_gets_its_arguments_and_gives_the_exit_status(command):
    seen = []
    command(lambda given: seen.append(given.size) or 7, **{"--size": {"type": int}})
    assert cli.main(["try", "--size", "3"]) == 7
    assert seen == [3]


def test_a_mistake_of_the_users_is_one_line_and_status_two(command, capsys):
    def body(given):
        raise ShapeError("matmul: `a` has 3 columns but `b` has 4 rows")

    command(body)
    assert cli.main(["try"]) == 2
    out, err = capsys.readouterr()
    assert (out, err) == (
        "",
        "tilejax try: matmul: `a` has 3 columns but `b` has 4 rows\n",
    )


def test_a_fault_of_ours_keeps_its_traceback(command):
    command(lambda given: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        cli.main(["try"])


def test_an_interrupt_is_status_130(command):
    def body(given):
        raise KeyboardInterrupt

    command(body)
    assert cli.main(["try"]) == 130


@pytest.mark.parametrize("words", [[], ["no-such"], ["doctor", "--no-such"]])
def test_words_that_mean_nothing_are_status_two_with_the_usage(words, capsys):
    with pytest.raises(SystemExit) as left:
        cli.main(words)
    assert left.value.code == 2
    assert "usage: tilejax" in capsys.readouterr().err


@pytest.mark.parametrize("entry", cli.COMMANDS, ids=lambda entry: entry.name)
def test_every_subcommand_explains_itself_and_has_a_body(entry, capsys):
    with pytest.raises(SystemExit) as left:
        cli.main([entry.name, "--help"])
    assert left.value.code == 0
    assert entry.help.split()[0] in capsys.readouterr().out
    assert callable(cli.import_module(entry.module).run)


def test_the_command_line_imports_no_subcommand_before_it_is_asked_for():
    names = [entry.module for entry in cli.COMMANDS]
    code = f"import sys, tilejax.cli; print([n for n in {names} if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


@pytest.mark.parametrize("words", [["doctor"], ["doctor", "--json"]])
def test_a_reader_that_leaves_early_gets_no_traceback(words):
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([*RUN, *words], stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")
