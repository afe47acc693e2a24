"""Compiled kernels: numbers in, numbers out.  Nothing is imported here."""
