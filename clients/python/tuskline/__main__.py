"""`python -m tuskline` is `tusk`."""

import sys

from .cli import main

sys.exit(main())
