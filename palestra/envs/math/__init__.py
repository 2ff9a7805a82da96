"""Math problems whose answers can be verified."""
