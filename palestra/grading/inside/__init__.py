"""What runs inside of the sandbox beside a submission: standard library only; its source is sent there as text."""
