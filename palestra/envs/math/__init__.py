"""Mathematics: problems with an answer that can be checked."""
