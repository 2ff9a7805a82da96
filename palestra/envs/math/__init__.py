"""Math problems with checkable answers."""
