"""Property tests are the same on every run; `--hypothesis-profile=explore` looks further."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("repeat", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, max_examples=2000, print_blob=True)
settings.load_profile("repeat")
