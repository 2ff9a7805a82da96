"""The map of a generated town: places, directions, reviews, saved places and suggested corrections."""
