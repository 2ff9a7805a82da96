"""Reporting for training runs: console output, metrics files and `report.html`."""
