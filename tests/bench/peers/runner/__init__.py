"""Runs Tuskline and its peers side by side; `../run` is the door, ../README.md says what is compared."""
