"""ScienceWorld: elementary science experiments in a text simulation, run by the package scienceworld (Java)."""
