"""Files and names that survive a power cut."""
