"""Carrying whole artifacts elsewhere: to and from a registry."""
