"""What the bytes mean: frames, entries, snapshots, segments, manifests, file names. No I/O."""
