"""Moving bytes: disk, journal, snapshots, segments, objects, manifests, recovery."""
