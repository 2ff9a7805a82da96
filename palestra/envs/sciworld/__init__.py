"""ScienceWorld environments with elementary science experiments, simulated by the scienceworld package in Java."""
