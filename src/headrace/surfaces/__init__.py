"""One package for each protocol; surfaces do not know each other."""
