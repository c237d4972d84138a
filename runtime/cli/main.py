"""`dfc`: the commands, and how failures leave the process."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from typing import NoReturn

import click

from dfc.runtime.cli.bench import bench
from dfc.runtime.cli.build import build
from dfc.runtime.cli.cache import cache
from dfc.runtime.cli.diff import diff
from dfc.runtime.cli.inspect import inspect
from dfc.runtime.cli.interrupt import INTERRUPTED, TERMINATED, Terminated, unwind_when_terminated
from dfc.runtime.cli.operators import operators
from dfc.runtime.cli.options import debug_option
from dfc.runtime.cli.pull import pull
from dfc.runtime.cli.push import push
from dfc.runtime.cli.run import run
from dfc.runtime.cli.sign import sign
from dfc.runtime.cli.verify import verify

FAILURE, USAGE = 1, 2


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="dfc", prog_name="dfc")
@debug_option
def cli() -> None:
    """Compile a language model with its speculative drafters, and decode with them losslessly.

    \b
    dfc build TARGET --draft DRAFTER -o ARTIFACT    checkpoints to one artifact directory, no GPU needed
    dfc run ARTIFACT --prompt TEXT                  generate; the same tokens as without a drafter
    dfc bench ARTIFACT                              how fast it is, with every drafter
    dfc inspect ARTIFACT                            what an artifact holds
    dfc verify ARTIFACT                             whether every file is as it was built
    dfc diff A B                                    what differs between two artifacts
    dfc sign ARTIFACT --key PRIVATE                 vouch for an artifact
    dfc push ARTIFACT oci://REGISTRY/NAME:TAG       send an artifact to a registry
    dfc pull oci://REGISTRY/NAME:TAG -o ARTIFACT    fetch one
    dfc cache                                       what is kept between builds, and removing it

    Results go to standard output, everything else to standard error. The exit code is 0 when the command did what it
    was asked to, 1 when it failed and 2 when the command line is wrong.
    """


cli.add_command(build)
cli.add_command(run)
cli.add_command(bench)
cli.add_command(inspect)
cli.add_command(operators)
cli.add_command(verify)
cli.add_command(diff)
cli.add_command(cache)
cli.add_command(sign)
cli.add_command(push)
cli.add_command(pull)


def main() -> NoReturn:
    """Run the command line and exit."""
    debug = "--debug" in sys.argv
    unwind_when_terminated()
    try:
        code = cli.main(prog_name="dfc", standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except (click.Abort, KeyboardInterrupt):
        _leave("interrupted", INTERRUPTED, debug, at_once=True)
    except Terminated:
        _leave("terminated", TERMINATED, debug, at_once=True)
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "dfc"
        _leave(f"{error.format_message()} (see {command} --help)", USAGE, debug)
    except click.ClickException as error:
        _leave(error.format_message(), error.exit_code, debug)
    except BrokenPipeError:
        # The reader of our output is gone; the interpreter must not fail again when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(FAILURE)
    except Exception as error:
        summary = " ".join(str(error).split()) or "no message"
        _leave(f"unexpected {type(error).__name__}: {summary}; --debug shows where", FAILURE, debug)


def _leave(message: str, code: int, debug: bool, *, at_once: bool = False) -> NoReturn:
    if debug:
        traceback.print_exc()
    click.echo(f"dfc: {message}", err=True)
    if at_once:
        # An engine library may still be building in its thread, and does not take the interpreter's end well.
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    main()
