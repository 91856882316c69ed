"""The `tilejax` command: a table of subcommands, each imported when it is asked for."""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from tilejax.errors import TileJAXError


@dataclass(frozen=True)
class Command:
    """Describe a subcommand.

    **Arguments:**

    - `name`: The word after `tilejax`.
    - `help`: One line for `tilejax --help`.
    - `module`: Where its `run(arguments: argparse.Namespace) -> int` lives; what `run`
        returns is the exit status.
    - `arguments`: Keywords of `ArgumentParser.add_argument`, by the argument's name.
    """

    name: str
    help: str
    module: str
    arguments: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


COMMANDS = (
    Command(
        name="doctor",
        help="show what this machine has, what is wrong, and what could be added",
        module="tilejax.report.doctor",
        arguments={"--json": {"action": "store_true", "help": "print JSON"}},
    ),
    Command(
        name="explain",
        help="show what is done to a function, what runs it and what it costs",
        module="tilejax.report.explain_cli",
        arguments={
            "function": {"metavar": "module:function"},
            "--shapes": {
                "nargs": "*",
                "default": [],
                "metavar": "TYPE",
                "help": "types of its arguments: f32[8,16] i32[8] ...",
            },
            "--target": {"help": "the target to explain for; the device at hand"},
            "--json": {"action": "store_true", "help": "print JSON"},
        },
    ),
    Command(
        name="cache",
        help="show or clear the compiled kernels that are kept on disk",
        module="tilejax.report.cache",
        arguments={
            "action": {"choices": ["info", "clear"]},
            "--json": {"action": "store_true", "help": "print JSON"},
        },
    ),
    Command(
        name="demo",
        help="train a small transformer on Python's manual and explain its step",
        module="tilejax.demo.run",
        arguments={
            "--steps": {"type": int, "default": 600, "help": "steps in all (600)"},
            "--checkpoint": {
                "default": ".tilejax/demo.checkpoint",
                "metavar": "FILE",
                "help": "where the run is saved (.tilejax/demo.checkpoint)",
            },
            "--fresh": {
                "action": "store_true",
                "help": "start anew, whatever the checkpoint holds",
            },
        },
    ),
)


def main(words: Sequence[str] | None = None) -> int:
    """Run the subcommand that the words name.

    **Arguments:**

    - `words`: What follows `tilejax` on the command line, by default `sys.argv[1:]`.

    **Returns:**

    The exit status: 0 for success, 1 for a finding or a reader that left, 2 for a
    mistake of the user's (said in one line on standard error), 130 if interrupted.
    """
    arguments = _parser().parse_args(words)
    try:
        status = import_module(arguments.module).run(arguments)
        sys.stdout.flush()
    except TileJAXError as error:
        print(f"tilejax {arguments.command}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader (`| head`) has left. What is in the buffer must not meet the closed
        # pipe again at exit. Quiet and 1, as rich does where it is the one to notice.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tilejax", description="A tiling compiler for JAX."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    for command in COMMANDS:
        one = commands.add_parser(
            command.name, help=command.help, description=command.help
        )
        one.set_defaults(module=command.module)
        for name, keywords in command.arguments.items():
            one.add_argument(name, **keywords)
    return parser


if __name__ == "__main__":
    sys.exit(main())
