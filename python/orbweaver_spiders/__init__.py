"""Crawlers that go by what an Orbweaver cluster says pages are worth."""

from .client import Client, Refused, Unavailable

__all__ = ["Client", "Refused", "Unavailable"]
