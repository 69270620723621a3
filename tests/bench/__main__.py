"""`python -m tests.bench`."""

from .run import main

raise SystemExit(main())
