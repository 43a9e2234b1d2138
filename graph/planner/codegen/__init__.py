"""Generated functions that serialize objects and driver rows."""
