"""What runs inside of the sandbox: standard library only, and nothing of Palestra but this folder."""
