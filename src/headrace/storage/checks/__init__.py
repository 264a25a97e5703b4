"""What must be true of each kind of file, and of all of them together. Reads only."""
