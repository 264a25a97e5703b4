"""What the records of a stream are: schemas by version, and lenses from each to the next."""
