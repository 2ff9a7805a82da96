"""Drive Chromium over the DevTools protocol: pages, observations as text or pictures, and a grammar of actions."""
