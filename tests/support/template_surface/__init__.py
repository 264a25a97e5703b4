"""The smallest surface there can be: what every new one begins as."""
