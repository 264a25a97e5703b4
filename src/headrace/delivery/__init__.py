"""What every surface needs to push: sinks, event framing, heartbeats, followers of logs."""
