"""Runs Tuskline and its peers side by side; ../README.md says what is compared, and how."""
