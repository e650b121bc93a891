"""`python -m api.stack up`: the commands of the stack alone, without loading all the others.

For tests and scripts that start many stacks; people use `burnproof up`, which is the same.
"""

import sys

import typer

from api.commands import stack

EXIT_NOTHING_LEARNT = 3

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)
stack.register(app)


def main() -> int:
    """Run one command; usage errors exit with 3, as everywhere in this project."""
    try:
        returned = typer.main.get_command(app).main(prog_name="burnproof", standalone_mode=False)
    except typer.TyperException as usage:
        sys.stderr.write(f"burnproof: {usage.format_message()}\n")
        return EXIT_NOTHING_LEARNT
    return returned if isinstance(returned, int) else 0


if __name__ == "__main__":
    sys.exit(main())
