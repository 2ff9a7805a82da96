"""Code that runs inside the sandbox. It may import only the standard library and this package."""
