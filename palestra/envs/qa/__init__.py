"""Questions of fact."""
