"""Reporting of a training run: console, metrics files, `report.html`."""
