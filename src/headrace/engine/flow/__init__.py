"""How work shares one loop: admission of writes, priorities, slices, time-outs, lag."""
