"""What every report is made of: a page in one file, charts as SVG, episodes as conversations."""
