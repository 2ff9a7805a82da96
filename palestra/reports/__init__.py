"""Building blocks for HTML reports: self-contained pages, SVG charts and episodes displayed as conversations."""
