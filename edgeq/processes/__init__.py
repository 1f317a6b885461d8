"""Handlers in processes of their own: warm children that a timeout really ends."""
