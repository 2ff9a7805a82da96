"""Every data set of the package reasoning-gym."""
