"""ScienceWorld environments with elementary science experiments, simulated by the Java package scienceworld."""
