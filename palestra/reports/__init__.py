"""Building blocks of HTML reports: self-contained pages, SVG charts, episodes as conversations."""
