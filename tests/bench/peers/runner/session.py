"""One session of psql that stays open, so that a question costs the server no new connection."""

import os
import subprocess

END = "end of the answer"


class Session:
    """Asks one statement at a time. Close it."""

    def __init__(self, environment):
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        self._psql = subprocess.Popen(
            ["psql", "-XqAt", "-v", "ON_ERROR_STOP=1"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=inherited | environment,
            process_group=0,
        )

    def ask(self, sql):
        """The rows of a statement, `|` between columns; what psql says when it fails."""
        lines = []
        try:
            self._psql.stdin.write(f"{sql};\n\\echo {END}\n")
            self._psql.stdin.flush()
            for line in self._psql.stdout:
                if line.rstrip("\n") == END:
                    return "\n".join(lines)
                lines.append(line.rstrip("\n"))
        except BrokenPipeError:
            pass
        raise RuntimeError(f"{sql}: {self._psql.stderr.read().strip()}")

    def close(self):
        """Ends it, and with it what it holds."""
        if self._psql.poll() is None:
            self._psql.kill()
        self._psql.communicate()
