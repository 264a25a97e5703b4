"""The bulk surface: records of any log as Arrow, and transactions that bring many at once."""
