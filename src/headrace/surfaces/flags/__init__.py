"""The flags surface: tenants, namespaces of flags, their manifests, and streams of changes."""
