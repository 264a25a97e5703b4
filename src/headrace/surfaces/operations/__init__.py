"""What operators ask of a server: is it alive, is it ready, how is it; and its documentation."""
