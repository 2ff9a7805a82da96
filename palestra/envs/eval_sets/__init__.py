"""The usual test sets, by the names they are known under."""
