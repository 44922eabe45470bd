"""The command `tusk`."""

from __future__ import annotations

import argparse
import gc
import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn, Optional

from ._app import Tuskline
from ._binary import binary
from ._outcomes import TusklineError
from ._own import address

#: Done; failed; a wrong call.
_DONE, _FAILED, _WRONG = 0, 1, 2


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Runs a command; returns the exit code."""
    options = _parser().parse_args(arguments)
    try:
        if options.command == "run":
            return _run(options)
        app = load(options.app)
        if options.command == "dev":
            from . import _dev

            return _dev.serve(app, options)
        if options.command == "define":
            return _define(app, options)
        if options.command == "executor":
            return _executor(app, options)
        from ._executor import zygote

        return zygote.serve(app, options.slots, options.app_version)
    except TusklineError as error:
        print(f"tusk: {error}", file=sys.stderr)
        if error.hint:
            print(f"  hint: {error.hint}", file=sys.stderr)
        return _WRONG if options.command in ("executor", "zygote") else _FAILED


def load(spec: str) -> Tuskline:
    """The app that `module:name` means, from the working directory or the path."""
    module, found, name = spec.partition(":")
    if not (module and found and name):
        raise TusklineError(f"{spec!r} names no app: write module:name, as app:tusk")
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        made = getattr(importlib.import_module(module), name)
    except AttributeError:
        raise TusklineError(f"the module {module} has no {name}") from None
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        where = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
        raise TusklineError(f"the import of {module} failed: {type(error).__name__}: {error}{where}") from error
    if not isinstance(made, Tuskline):
        raise TusklineError(f"{spec} is a {type(made).__name__}, not a Tuskline")
    return made


def _parser() -> argparse.ArgumentParser:
    from ._executor.messages import DEFAULT_SLOTS

    parser = argparse.ArgumentParser(prog="tusk", description="Run the lambdas of a Python application.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, text: str) -> argparse.ArgumentParser:
        one = commands.add_parser(name, help=text, description=text)
        one.add_argument("app", metavar="APP", help="module:name of the app, as app:tusk")
        return one

    def worker(name: str, text: str) -> argparse.ArgumentParser:
        one = command(name, text)
        one.add_argument(
            "--slots", type=_positive, default=DEFAULT_SLOTS, metavar="N",
            help=f"attempts at a time of each lambda in one process ({DEFAULT_SLOTS})",
        )  # fmt: skip
        one.add_argument("--app-version", metavar="VERSION", help="version of the application, for people to see")
        return one

    run = worker("run", "Execute tasks until told to stop: the controller, and executors in processes of their own")
    run.add_argument("--processes", type=_positive, default=1, metavar="N", help="executors (1)")
    run.add_argument("--spawn", action="store_true", help="start each executor afresh, instead of forks of one import")
    run.add_argument("--database-url", metavar="URL", help="else TUSKLINE_DATABASE_URL")
    run.add_argument("--drain-grace", metavar="D", help="on SIGTERM, how long running tasks may take (20s)")
    run.add_argument("--cancel-grace", metavar="D", help="how long a task that was told to stop may take (5s)")
    dev = command("dev", "Run the app on a PostgreSQL of its own, which stays, with a server: to begin and to develop")
    dev.add_argument("task", nargs="?", metavar="LAMBDA", help="also schedule a task of this lambda, and show how it ends")
    dev.add_argument("payload", nargs="?", default="null", metavar="JSON", help="its payload")
    dev.add_argument("--processes", type=_positive, default=1, metavar="N", help="executors (1)")
    define = command("define", "Bring the lambdas with their settings to the database, as a deploy does")
    define.add_argument("--app-version", metavar="VERSION", help="an older version changes nothing of a newer one")
    define.add_argument("--dry-run", action="store_true", help="only show the changes")
    define.add_argument("--database-url", metavar="URL", help="else TUSKLINE_DATABASE_URL")
    worker("executor", "Execute tasks for the controller that has started this process")
    worker("zygote", "Import the app once, and fork executors for the controller that has started this process")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def _run(options: argparse.Namespace) -> int:
    program = binary()
    address(options.database_url)  # refuse before anything starts
    rest = ["--slots", str(options.slots)]
    if options.app_version is not None:
        rest += ["--app-version", options.app_version]
    options.spawn = options.spawn or sys.platform != "linux"  # forks are adopted by a subreaper, which only Linux has
    if options.spawn:
        isolated = [name for name, one in load(options.app).lambdas.items() if one.isolate]
        if isolated:
            raise TusklineError(f"{isolated[0]} has isolate=True, which needs the zygote: leave out --spawn (Linux only)")
    kind = "executor" if options.spawn else "zygote"
    command = [program, "controller", "--processes", str(options.processes)]
    if options.database_url is not None:
        # By the environment: the list of processes shows arguments to everyone.
        os.environ["TUSKLINE_DATABASE_URL"] = options.database_url
    for name, value in (("--drain-grace", options.drain_grace), ("--cancel-grace", options.cancel_grace)):
        command += [name, value] if value is not None else []
    if not options.spawn:
        command.append("--zygote")
    command += ["--", sys.executable, "-m", "tuskline", kind, options.app, *rest]
    _become(command)


def _become(command: list[str]) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execv(command[0], command)
    except OSError as error:
        raise TusklineError(f"{command[0]} does not start: {error.strerror}") from None


def _define(app: Tuskline, options: argparse.Namespace) -> int:
    if options.database_url is not None:
        app.url = options.database_url
    try:
        for one in app.define(version=options.app_version, dry_run=options.dry_run):
            changes = ", ".join(f"{name}: {before} -> {after}" for name, (before, after) in one.changes.items())
            print(f"{one.name}: {one.outcome}" + (f" ({changes})" if changes else ""))
    finally:
        app.close()
    return _DONE


def _executor(app: Tuskline, options: argparse.Namespace) -> int:
    from ._executor import process

    # A later collection skips the objects of the import.
    gc.collect()
    gc.freeze()
    named = os.environ.get("TUSKLINE_LAMBDAS")
    code = process.serve(app, named.split(",") if named else None, options.slots, options.app_version)
    process.leave(code)
