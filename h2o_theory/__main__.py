"""``python -m h2o_theory`` is the command line."""

import sys

from h2o_theory.cli import main

sys.exit(main())
