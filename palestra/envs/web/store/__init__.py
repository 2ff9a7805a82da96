"""A shop with its dashboard that runs on django-oscar."""
