"""From API objects as JSON to the domain's values. Pure."""
