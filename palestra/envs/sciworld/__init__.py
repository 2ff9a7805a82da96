"""ScienceWorld: elementary science experiments in a house of text; the engine is the package scienceworld (Java)."""
