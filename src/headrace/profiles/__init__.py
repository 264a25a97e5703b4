"""What streams are for: a profile makes of what is appended what the stream holds."""
