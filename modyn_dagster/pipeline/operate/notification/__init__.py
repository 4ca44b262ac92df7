"""Notification: events of live runs, told through the channels that a pipeline names."""
