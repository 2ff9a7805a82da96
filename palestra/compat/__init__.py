"""Packages that mirror the interfaces of other libraries, so that code written for them runs on Palestra."""
