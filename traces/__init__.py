"""Traces that come with the project; see README.md in this folder."""
