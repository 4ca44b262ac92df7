"""Notification of people and programs: which events of live runs are told, and through which channels."""
