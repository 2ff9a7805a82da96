"""Code that runs inside the sandbox. It may import the standard library and this package, nothing else."""
