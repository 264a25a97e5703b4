"""What is true: seqs, floors, gaps, retention, deletion. Pure: no clock, no file, no randomness."""
