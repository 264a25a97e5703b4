"""Processes beside the server: started, scheduled, asked, ended."""
